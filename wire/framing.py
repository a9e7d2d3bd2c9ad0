"""Length-prefixed frames: int32 size, then that many bytes.

Pure functions over buffers; the socket is somebody else's. Source: Kafka protocol guide, "Protocol Primitives".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.wire import compiler
from ottla.wire.apis import ApiKey, request_header_version, response_header_version
from ottla.wire.errors import WireError
from ottla.wire.messages.headers import RequestHeader, ResponseHeader
from ottla.wire.schema import Message

MAX_REQUEST_BYTES = 104_857_600
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")


class Request(NamedTuple):
    """A request frame with its header read: what dispatch looks at before it decodes the body."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    frame: memoryview
    body: int
    """Position of the body in the frame."""


def frame_size(prefix: bytes | bytearray | memoryview, limit: int = MAX_REQUEST_BYTES) -> int:
    """The size a four-byte prefix announces.

    Raises:
        WireError: negative, or above the limit (``socket.request.max.bytes``).
    """
    (size,) = _SIZE.unpack_from(prefix)
    if size < 0 or size > limit:
        raise WireError(f"a frame of {size} bytes; at most {limit}")
    return int(size)


def parse_request(frame: memoryview) -> Request:
    """Read a request's header.

    ApiVersions is let through in any version: it is answered even when its version is unknown, so a newer client
    can fall back. The header of a version newer than ours is taken to be the newest we know.

    Raises:
        WireError: unknown key or version, or a header that does not parse.
    """
    if len(frame) < 8:
        raise WireError(f"a request of {len(frame)} bytes has no header")
    key_number, version, correlation_id = _HEAD.unpack_from(frame)
    try:
        key = ApiKey(key_number)
    except ValueError:
        raise WireError(f"unknown api key {key_number}") from None
    header, body = compiler.decode(RequestHeader, request_header_version(key, version), frame)
    return Request(key, version, correlation_id, header.client_id or "", frame, body)


def request_frame(key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    """A whole request frame: what our own clients send."""
    header = RequestHeader(key, version, correlation_id, client_id)
    out = compiler.encode(header, request_header_version(key, version)) + compiler.encode(body, version)
    return _SIZE.pack(len(out)) + out


def response_chunks(key: ApiKey, version: int, correlation_id: int, body: Message) -> list[compiler.Chunk]:
    """A response frame as chunks; record data stays what the handler gave (bytes, or a range of a file)."""
    head: list[compiler.Chunk] = [b""]
    head += compiler.encode_chunks(ResponseHeader(correlation_id), response_header_version(key, version))
    head += compiler.encode_chunks(body, version)
    head[0] = _SIZE.pack(sum(map(len, head)))
    return head
