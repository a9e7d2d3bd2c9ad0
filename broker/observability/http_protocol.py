"""HTTP/1.1 as far as a page of numbers needs it: one request, one response, and the connection is closed.

Source: RFC 9110, RFC 9112.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from ottla.broker.config.limits import MAX_HTTP_DISCARDED_BYTES, MAX_HTTP_HEAD_BYTES
from ottla.env.env import Stream

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_ABSOLUTE_FORM = re.compile(rb"[Hh][Tt][Tt][Pp][Ss]?://[^/?#]*")
_CONTENT_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,18})[ \t]*$", re.IGNORECASE | re.MULTILINE)


class HttpStatus(NamedTuple):
    """Status code and reason of a response."""

    code: int
    reason: bytes
    fields: bytes = b""
    """Header fields that belong to it."""


OK = HttpStatus(200, b"OK")
BAD_REQUEST = HttpStatus(400, b"Bad Request")
NOT_FOUND = HttpStatus(404, b"Not Found")
METHOD_NOT_ALLOWED = HttpStatus(405, b"Method Not Allowed", b"Allow: GET, HEAD\r\n")
HEAD_TOO_LARGE = HttpStatus(431, b"Request Header Fields Too Large")
VERSION_NOT_SUPPORTED = HttpStatus(505, b"HTTP Version Not Supported")


class HttpRequest(NamedTuple):
    """The head of a request."""

    method: bytes = b""
    path: bytes = b""
    """Without authority and query."""
    body_bytes: int = 0
    """Length of the body that has not been received yet."""
    problem: HttpStatus | None = None
    """What is wrong with the head itself."""


async def read_request(stream: Stream, timeout_s: float) -> HttpRequest | None:
    """Read the head of a request; None if the client closes the connection or pauses before the head is complete."""
    raw, searched = b"", 0
    buffer = bytearray(MAX_HTTP_HEAD_BYTES)
    while True:
        raw = raw.lstrip(b"\r\n")
        if raw and not b"!" <= raw[:1] <= b"~":  # such as the first byte of a TLS handshake
            return HttpRequest(problem=BAD_REQUEST, body_bytes=MAX_HTTP_DISCARDED_BYTES)
        end = _HEAD_END.search(raw, max(searched - 3, 0))
        if end is not None and end.start() <= MAX_HTTP_HEAD_BYTES:
            return parse_head(raw[: end.start()], len(raw) - end.end())
        if len(raw) > MAX_HTTP_HEAD_BYTES:
            return HttpRequest(problem=HEAD_TOO_LARGE, body_bytes=MAX_HTTP_DISCARDED_BYTES)
        count = await stream.receive_into(memoryview(buffer), timeout_s)
        if count == 0:
            return None
        searched = len(raw)
        raw += buffer[:count]


def parse_head(head: bytes, body_received: int = 0) -> HttpRequest:
    """Return the request of a head; ``body_received``: bytes that came behind it."""
    line, _, fields = head.replace(b"\r\n", b"\n").partition(b"\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        return HttpRequest(problem=BAD_REQUEST)
    method, target, major, _ = found.groups()
    length = _CONTENT_LENGTH.search(fields)
    body_bytes = max(int(length[1]) - body_received, 0) if length is not None else 0
    path = re.split(rb"[?#]", _ABSOLUTE_FORM.sub(b"", target, count=1), maxsplit=1)[0] or b"/"
    return HttpRequest(method, path, body_bytes, None if major == b"1" else VERSION_NOT_SUPPORTED)


def check_request(request: HttpRequest, paths: Collection[bytes]) -> HttpStatus | None:
    """Return why a request is refused; None if it asks for one of the paths."""
    if request.problem is not None:
        return request.problem
    if request.path not in paths:
        return NOT_FOUND
    return None if request.method in (b"GET", b"HEAD") else METHOD_NOT_ALLOWED


def build_response(request: HttpRequest, status: HttpStatus, body: bytes) -> list[bytes]:
    """Return the chunks of a response of plain text; one to HEAD has no body."""
    head = b"HTTP/1.1 %d %s\r\n%s%sContent-Length: %d\r\nConnection: close\r\n\r\n" % (
        status.code,
        status.reason,
        status.fields,
        b"Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
        len(body),
    )
    return [head] if request.method == b"HEAD" else [head, body]


async def discard_body(stream: Stream, request: HttpRequest, timeout_s: float) -> None:
    """Receive what a refused request still sends: closed before, the connection is reset and the response lost."""
    left = min(request.body_bytes, MAX_HTTP_DISCARDED_BYTES)
    buffer = bytearray(MAX_HTTP_HEAD_BYTES)
    while left > 0:
        count = await stream.receive_into(memoryview(buffer), timeout_s)
        if count == 0:
            return
        left -= count
