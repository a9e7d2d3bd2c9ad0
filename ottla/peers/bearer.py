"""Tokens to log in with by OAUTHBEARER: out of a file, or from who gives them to those who know a secret.

Behaviour: a file is read anew for each login. Else the client's id and secret go to the token endpoint, each time one
logs in, and its answer's ``access_token``, or ``id_token``, is what is shown. Nothing here looks into a token.

Source: ``FileJwtRetriever.java``, ``ClientSecretRequestFormatter.java``, ``HttpJwtRetriever.java``,
``JwtResponseParser.java``, ``OAuthBearerSaslClient.java`` (apache/kafka 4.3.1).

From KIP-255, KIP-768; RFC 6749, RFC 7628.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from urllib.parse import quote_plus, unquote, urlsplit

from ottla.peers.access import BearerSource
from ottla.peers.fetching import CannotFetch, is_address, is_file, posted
from ottla.peers.jaas import LoginModule
from ottla.world.disk import read_file
from ottla.world.env import Env
from ottla.world.tls import Tls

HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
HANDLERS = (
    _PACKAGE + "OAuthBearerLoginCallbackHandler",
    _PACKAGE + "secured.OAuthBearerLoginCallbackHandler",  # its name until 4.0
)
SETTINGS = (
    HANDLER,
    URL,
    *(f"sasl.oauthbearer.client.credentials.client.{x}" for x in ("id", "secret")),
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.header.urlencode",
)
_TOKEN = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_SECRET = {
    "sasl.oauthbearer.client.credentials.client.id": "clientId",
    "sasl.oauthbearer.client.credentials.client.secret": "clientSecret",
}


class NoToken(OSError):
    """There is no token to be had. The message shows nothing of one, nor of a secret."""


def source_of(values: Mapping[str, str], module: LoginModule, tls: Tls | None) -> BearerSource:
    """Where tokens come from; ``values``: by the settings' names; ``tls``: whom to trust, where the JAAS line says so.

    Raises:
        ValueError: it is not said, or cannot be; one line, without a secret.
    """
    if values.get(HANDLER) not in HANDLERS:
        raise ValueError(f"OAUTHBEARER needs {HANDLER}={HANDLERS[0]}: others make tokens of their own")
    url = values.get(URL, "")
    if is_file(url):
        return BearerSource(url)
    if not is_address(url):
        raise ValueError(f"{URL} is where tokens come from: file:///..., https://... or http://...")
    found = [values.get(name) or module.options.get(option, "") for name, option in _SECRET.items()]
    if not all(x.strip() for x in found):
        raise ValueError(f"{' and '.join(_SECRET)} are needed for {URL}")
    client_id, secret = (x.strip() for x in found)
    scope = (values.get("sasl.oauthbearer.scope") or module.options.get("scope", "")).strip()
    if values.get("sasl.oauthbearer.header.urlencode", "").strip().lower() == "true":
        client_id, secret, scope = quote_plus(client_id), quote_plus(secret), quote_plus(scope)
    if any(not x.isprintable() for x in (client_id, secret, scope)):
        raise ValueError(f"{' and '.join(_SECRET)} cannot be sent")
    return BearerSource(url, client_id, secret, scope, tls)


async def token_of(env: Env, source: BearerSource) -> str:
    """A token to log in with.

    Raises:
        NoToken: there is none.
    """
    if is_file(source.url):
        path = unquote(urlsplit(source.url).path)
        try:
            text = read_file(env.disk, path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoToken(f"{path}: {getattr(error, 'strerror', None) or 'no token'}") from None
    else:
        text = await _given(env, source)
    if _TOKEN.fullmatch(text) is None:
        raise NoToken(f"what {source.url} gives is no token")
    return text


async def _given(env: Env, source: BearerSource) -> str:
    basic = b64encode(f"{source.client_id}:{source.secret}".encode()).decode()
    form = "grant_type=client_credentials" + (f"&scope={source.scope}" if source.scope else "")
    headers = {"Authorization": f"Basic {basic}", "Cache-Control": "no-cache"}
    try:
        answer = json.loads(await posted(env, source.url, source.tls, headers, form))
    except (CannotFetch, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, CannotFetch) else "no JSON"
        raise NoToken(f"no token from {source.url}: {why}") from None
    found = (answer.get("access_token") or answer.get("id_token")) if isinstance(answer, dict) else None
    return found.strip() if isinstance(found, str) else ""


def first_message(token: str) -> bytes:
    """What is said first."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
