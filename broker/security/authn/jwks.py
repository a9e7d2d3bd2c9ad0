"""JSON web key set (JWKS) that verifies OAUTHBEARER tokens, read from a file or fetched from a URL.

Behaviour (S-330): a changed file is read again. A URL is fetched every ``sasl.oauthbearer.jwks.endpoint.refresh.ms``,
and soon after a token with an unknown key id, which is rejected: at most once a minute for each such id. If a fetch
fails the keys are retained. Signatures are checked by the library PyJWT: loading it takes 40 ms, so it is loaded with
the creation of the key set, before the first token.

Source: ``RefreshingHttpsJwks.java``, ``RefreshingHttpsJwksVerificationKeyResolver.java``, ``CachedFile.java``,
``VerificationKeyResolverFactory.java`` (apache/kafka 4.3.1); the matching of keys, from jose4j.

From KIP-768.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from json import loads
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import trio

from ottla.broker.config.limits import MIN_JWKS_REFRESH_INTERVAL_S, MIN_UNKNOWN_KEY_INTERVAL_MS
from ottla.broker.security.authn.oauthbearer_server import InvalidToken
from ottla.client.http_client import HttpFetchError, http_get, is_file_url
from ottla.env.disk import read_file
from ottla.env.env import Env
from ottla.env.tls import TlsConfig

logger = logging.getLogger("ottla.auth")
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""Key type (``kty``) by the first two letters of an algorithm. HMAC algorithms and ``none`` are not accepted."""
_VERIFY = ("verify",)
_MAX_KEYS_TRIED = 16
_MAX_UNKNOWN_KEY_IDS = 16
_NAME_CHARS = 1000


class JwksRefresh(NamedTuple):
    """Intervals of JWKS fetches in milliseconds: regular, and the first and maximum backoff after failures."""

    every_ms: int
    backoff_ms: int
    max_backoff_ms: int


class JsonWebKeySet:
    """Public keys of the token signatures that a listener accepts."""

    def __init__(self, env: Env, url: str, refresh: JwksRefresh, tls: TlsConfig | None = None) -> None:
        """Create an empty key set and load the library PyJWT.

        ``url``: of a file, http or https. ``tls``: trust settings for https; None for the authorities of the system.
        """
        # lazy: 41.5 ms, 2803 kB: with the extra `oauth`
        from jwt import PyJWK
        from jwt.api_jws import PyJWS
        from jwt.exceptions import PyJWTError

        self._key_of, self._signatures, self._wrong = PyJWK, PyJWS(), PyJWTError
        self._env, self.url, self._refresh, self._tls = env, url, refresh, tls
        self._keys: list[Mapping[str, Any]] = []
        self._loaded_keys: dict[tuple[int, str], Any] = {}
        """Loaded keys by index in the key set and algorithm."""
        self._read_ms = -1
        self._unknown_key_ids: dict[str, float] = {}
        """Unknown key ids of tokens, with the monotonic time in ms of the refresh requested for each."""
        self._refresh_now = trio.Event()
        self._path = unquote(urlsplit(url).path) if is_file_url(url) else None

    def verify(self, header: Mapping[str, Any], token: str) -> bytes:
        """Return the JSON claims of a token that a key of the set has signed; ``header``: its decoded header.

        Keys of a file are read again first if the file has changed, which blocks. If no key matches, a fetch of the URL
        is requested for later tokens, at most once a minute for each key id; this call does not wait for it.

        Raises:
            InvalidToken: unsupported algorithm, unreadable file, or no key of the set matches or has signed the token.
        """
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm[:2] not in _KEY_TYPES:
            raise InvalidToken("unsupported signature algorithm")
        if self._path is not None:
            self._reload_file(self._path)
        fitting = list(self._matching_keys(algorithm, header.get("kid")))
        if not fitting:
            self._request_refresh(header.get("kid"))
            raise InvalidToken("no key matches its algorithm and key id")
        for place in fitting[:_MAX_KEYS_TRIED]:
            claims = self._verify_with(place, algorithm, token)
            if claims is not None:
                return claims
        raise InvalidToken("its signature is not valid for a known key")

    def _matching_keys(self, algorithm: str, name: object) -> Iterator[int]:
        """Yield the indexes of the keys that may verify an algorithm and key id (None: any).

        A property that a key lacks (``alg``, ``use``, ``key_ops``, ``kid``) matches.
        """
        for place, key in enumerate(self._keys):
            is_of_kind = key.get("kty") == _KEY_TYPES[algorithm[:2]] and key.get("alg", algorithm) == algorithm
            is_to_verify = key.get("use", "sig") == "sig" and "verify" in key.get("key_ops", _VERIFY)
            if is_of_kind and is_to_verify and (name is None or key.get("kid", name) == name):
                yield place

    def _verify_with(self, place: int, algorithm: str, token: str) -> bytes | None:
        try:
            if (place, algorithm) not in self._loaded_keys:
                self._loaded_keys[place, algorithm] = self._key_of(dict(self._keys[place]), algorithm)
            payload = self._signatures.decode_complete(token, self._loaded_keys[place, algorithm], [algorithm])[
                "payload"
            ]
        except (self._wrong, ValueError, TypeError, RecursionError):  # the library rejects some keys when it loads them
            return None
        return bytes(payload)

    def _request_refresh(self, name: object) -> None:
        """Let `run` fetch the keys soon, as a token has an unknown key id ``name``, which may be a new one.

        No effect if the keys are in a file, for a name that is no string or longer than `_NAME_CHARS`, and within
        `MIN_UNKNOWN_KEY_INTERVAL_MS` of the last request for this name.
        """
        if self._path is not None or not isinstance(name, str) or len(name) > _NAME_CHARS:
            return
        now_ms = self._env.monotonic_ms()
        if now_ms - self._unknown_key_ids.get(name, float("-inf")) < MIN_UNKNOWN_KEY_INTERVAL_MS:
            return
        self._unknown_key_ids.pop(name, None)
        while len(self._unknown_key_ids) >= _MAX_UNKNOWN_KEY_IDS:
            self._unknown_key_ids.pop(next(iter(self._unknown_key_ids)))
        self._unknown_key_ids[name] = now_ms
        self._refresh_now.set()

    def _reload_file(self, path: str) -> None:
        try:
            changed_ms = self._env.disk.stat(path).mtime_ms
            if changed_ms != self._read_ms:
                self._replace_keys(read_file(self._env.disk, path))
                self._read_ms = changed_ms
        except (OSError, ValueError) as error:
            raise InvalidToken(f"the keys in {path} cannot be read: {error}") from None

    def _replace_keys(self, raw: bytes) -> None:
        """Replace the keys by the keys in a JWKS document (RFC 7517). Raises ValueError if the document is invalid."""
        try:
            keys = loads(raw)["keys"]
        except (KeyError, TypeError, RecursionError):
            raise ValueError("no set of keys") from None
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise ValueError("no set of keys")
        self._keys, self._loaded_keys = keys, {}

    async def run(self) -> None:
        """Fetch the keys periodically, until cancelled; return at once if they are in a file.

        A failed fetch, or an invalid document, is logged and repeated; the former keys stay in use.
        """
        if self._path is not None:
            return
        failures = 0
        while True:
            self._refresh_now = trio.Event()
            try:
                self._replace_keys(await http_get(self._env, self.url, self._tls))
                failures = 0
            except (HttpFetchError, ValueError) as error:
                failures += 1
                if failures in (1, 10) or failures % 100 == 0:
                    logger.warning("Failed to refresh JWKS from %s, retrying: %s", self.url, error)
            await self._wait_for_refresh(failures)

    async def _wait_for_refresh(self, failures: int) -> None:
        """Wait until the next fetch is due; each failed fetch in a row (``failures``) doubles the wait.

        After a successful fetch `_request_refresh` ends the wait earlier, but not before `MIN_JWKS_REFRESH_INTERVAL_S`.
        """
        refresh, sleep = self._refresh, self._env.sleep
        if failures:
            pause_ms = min(refresh.backoff_ms * 2.0 ** min(failures - 1, 30), refresh.max_backoff_ms)
            await sleep(max(pause_ms / 1000, 0.001))
            return
        await sleep(MIN_JWKS_REFRESH_INTERVAL_S)
        with self._env.timeout(max(refresh.every_ms / 1000 - MIN_JWKS_REFRESH_INTERVAL_S, 0)):
            await self._refresh_now.wait()
