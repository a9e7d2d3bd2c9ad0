"""HTTP client for small documents (JWKS, OAuth tokens, metrics, schemas): one GET or POST, over TLS for ``https``.

The response is parsed by ``http.client``. Redirects are not followed.

Source: what ``RefreshingHttpsJwks.java`` needs of jose4j's ``Get``; ``HttpJwtRetriever.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ottla.env.env import Env, Stream
from ottla.env.tls import TlsConfig

MAX_DOCUMENT_BYTES = 1024 * 1024
TIMEOUT_S = 20.0
FORM = "application/x-www-form-urlencoded"
_PORTS = {"http": 80, "https": 443}
_HEAD = "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\nConnection: close\r\n"


class HttpFetchError(Exception):
    """Raised if a document cannot be fetched; the message is the reason."""


class _ResponseBytes:
    """Received bytes with the ``makefile`` method of a socket, which ``http.client.HTTPResponse`` calls."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, mode: str) -> io.BytesIO:
        """Return a file object over the received bytes."""
        return io.BytesIO(self._raw)


def is_http_url(url: str) -> bool:
    """Return True for an ``http://`` or ``https://`` URL with a host name, in ASCII and without spaces.

    Its port, if any, must be from 1 to 65535.
    """
    try:
        parts = urlsplit(url)
        return parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0 and url.isascii() and " " not in url
    except ValueError:
        return False


def is_file_url(url: str) -> bool:
    """Return True for a URL of a local file, ``file:///PATH``."""
    return url.startswith("file:///") and len(url) > len("file:///")


async def http_get(env: Env, url: str, tls: TlsConfig | None = None, *, max_bytes: int = MAX_DOCUMENT_BYTES) -> bytes:
    """Return a document fetched by GET; ``tls``: trusted authorities for ``https``, None for the system's.

    Raises:
        HttpFetchError: an invalid URL, a failed connection, no response within `TIMEOUT_S`, a malformed one, a status
            other than 200, or a response of more than ``max_bytes``, head included.
    """
    return await _request(env, url, tls, "GET", b"\r\n", max_bytes)


async def http_post(
    env: Env, url: str, tls: TlsConfig | None, headers: Mapping[str, str], body: bytes, content_type: str
) -> bytes:
    """Send ``body`` by POST with its content type and further headers; return the body of the response.

    ``tls`` and errors are those of `http_get`, with at most `MAX_DOCUMENT_BYTES`.
    """
    all_headers = {**headers, "Content-Type": content_type, "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
    return await _request(env, url, tls, "POST", f"{lines}\r\n".encode() + body)


async def _request(
    env: Env, url: str, tls: TlsConfig | None, method: str, rest: bytes, max_bytes: int = MAX_DOCUMENT_BYTES
) -> bytes:
    if not is_http_url(url):
        raise HttpFetchError("not an http:// or https:// URL")
    parts = urlsplit(url)
    trusted = (tls or TlsConfig()) if parts.scheme == "https" else None
    with env.timeout(TIMEOUT_S) as deadline:
        try:
            host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
            stream = await (env.net.connect(host, port) if trusted is None else env.net.connect(host, port, trusted))
            try:
                raw = await _exchange(stream, parts, method, rest, max_bytes)
            finally:
                stream.close()
        except OSError as error:
            raise HttpFetchError(str(error)) from None
    if deadline.cancelled_caught:
        raise HttpFetchError(f"no response within {TIMEOUT_S:g} s")
    return _document(raw)


async def _exchange(stream: Stream, parts: SplitResult, method: str, rest: bytes, max_bytes: int) -> bytes:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = _HEAD.format(method=method, path=path, host=parts.netloc.rpartition("@")[2]).encode("ascii")
    await stream.send([head + rest])
    out, buffer = bytearray(), bytearray(64 * 1024)
    while count := await stream.receive_into(memoryview(buffer), TIMEOUT_S):
        out += buffer[:count]
        if len(out) > max_bytes:
            raise HttpFetchError(f"more than {max_bytes} bytes")
    return bytes(out)


def _document(raw: bytes) -> bytes:
    sock: Any = _ResponseBytes(raw)
    answer = HTTPResponse(sock)
    try:
        answer.begin()
        body = answer.read()
    except (HTTPException, ValueError) as error:
        raise HttpFetchError(f"no HTTP: {type(error).__name__}") from None
    if answer.status != 200:
        raise HttpFetchError(f"status {answer.status}")
    return body
