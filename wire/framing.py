"""Length-prefixed frames: int32 size, then that many bytes.

Pure functions over buffers without I/O. Source: Kafka protocol guide, "Protocol Primitives".
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import NamedTuple

from ottla.wire.api_keys import ApiKey, request_header_version, request_spec, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages.headers import RequestHeader

MAX_REQUEST_BYTES = 104_857_600
_SIZE = struct.Struct(">i")
_REQUEST_HEADER = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i").unpack_from
_MAX_CACHED_HEADER_BYTES = 512
_KEY_AND_VERSION_BYTES = 4
_RESPONSE_HEADERS = (struct.Struct(">ii"), struct.Struct(">iib"))
"""Size and correlation id; from header version 1 an empty section of tagged fields behind them."""

_header_versions: dict[tuple[int, int], tuple[ApiKey, int]] = {}
"""(key, version) -> the key, and the version of the request's header; only versions that exist are kept."""


class RequestFrame(NamedTuple):
    """A request frame with its header read: what dispatch looks at before it decodes the body."""

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    frame: memoryview
    body_position: int
    """Position of the body in the frame."""
    response_version: int
    """Version of the response; 0 for ApiVersions in a version that is unknown here."""


def parse_frame_size(prefix: bytes | bytearray | memoryview, limit: int = MAX_REQUEST_BYTES, pos: int = 0) -> int:
    """Return the size that the four-byte prefix at ``pos`` announces.

    Raises:
        WireError: negative, or above the limit (``socket.request.max.bytes``).
    """
    (size,) = _SIZE.unpack_from(prefix, pos)
    if size < 0 or size > limit:
        raise WireError(f"a frame of {size} bytes; at most {limit}")
    return int(size)


def parse_request(frame: memoryview) -> RequestFrame:
    """Read a request's header.

    ApiVersions is let through in any version: it is answered even when its version is unknown, so a newer client
    can fall back (KIP-511). The header of a version newer than ours is taken to be the newest we know.

    Raises:
        WireError: unknown key or version, or a header that does not parse.
    """
    if len(frame) < 8:
        raise WireError(f"a request of {len(frame)} bytes has no header")
    key_number, version, correlation_id = _REQUEST_HEADER.unpack_from(frame)
    known = _header_versions.get((key_number, version))
    key, header_version = _resolve_header(key_number, version) if known is None else known
    header, body = compiler.decode(RequestHeader, header_version, frame)
    answered = 0 if key is ApiKey.API_VERSIONS and version not in request_spec(key).versions else version
    return RequestFrame(key, version, correlation_id, header.client_id or "", frame, body, answered)


class RequestHeaderCache:
    """The heads of one connection's requests: most are as the one before, but for the correlation id."""

    __slots__ = ("_answered", "_body", "_client_id", "_key", "_rest", "_start", "_version")

    def __init__(self) -> None:
        self._start, self._rest = b"no four bytes", b""
        self._key, self._version, self._client_id, self._body, self._answered = ApiKey.PRODUCE, 0, "", 8, 0

    @property
    def last_request(self) -> tuple[ApiKey, int, str] | None:
        """API, version and client id of the last request; None before the first."""
        return (self._key, self._version, self._client_id) if len(self._start) == _KEY_AND_VERSION_BYTES else None

    def parse_request(self, frame: memoryview) -> RequestFrame:
        """As `parse_request`.

        Raises:
            WireError: as there.
        """
        body = self._body
        if frame[:4] == self._start and frame[8:body] == self._rest:
            correlation_id = _CORRELATION(frame, 4)[0]
            return RequestFrame(self._key, self._version, correlation_id, self._client_id, frame, body, self._answered)
        request = parse_request(frame)
        if request.body_position <= _MAX_CACHED_HEADER_BYTES:
            self._key, self._version, _, self._client_id, _, self._body, self._answered = request
            self._start, self._rest = bytes(frame[:4]), bytes(frame[8 : request.body_position])
        return request


def _resolve_header(key_number: int, version: int) -> tuple[ApiKey, int]:
    try:
        key = ApiKey(key_number)
    except ValueError:
        raise WireError(f"unknown api key {key_number}") from None
    found = key, request_header_version(key, version)
    if version in request_spec(key).versions:
        _header_versions[key_number, version] = found
    return found


def encode_request(key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    """Return a whole request frame: what our own clients send."""
    header = RequestHeader(key, version, correlation_id, client_id)
    out = compiler.encode(header, request_header_version(key, version)) + compiler.encode(body, version)
    return _SIZE.pack(len(out)) + out


def encode_request_job(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Message
) -> Generator[None, None, bytes]:
    """As `encode_request`, for requests with many elements: stopping often."""
    header = compiler.encode(
        RequestHeader(key, version, correlation_id, client_id), request_header_version(key, version)
    )
    chunks = yield from compiler.encode_job(body, version)
    out = b"".join((header, *chunks))
    return _SIZE.pack(len(out)) + out


def encode_response(key: ApiKey, version: int, correlation_id: int, body: Message) -> list[compiler.Chunk]:
    """Return a response frame as chunks; record data stays what the handler gave (bytes, or a range of a file)."""
    return _frame_response(key, version, correlation_id, compiler.encode_chunks(body, version))


def encode_response_job(
    key: ApiKey, version: int, correlation_id: int, body: Message
) -> Generator[None, None, list[compiler.Chunk]]:
    """As `encode_response`; stops often where the response has many elements."""
    chunks = yield from compiler.encode_job(body, version)
    return _frame_response(key, version, correlation_id, chunks)


def start_encoding_response(
    key: ApiKey, version: int, correlation_id: int, body: Message
) -> list[compiler.Chunk] | Generator[None, None, list[compiler.Chunk]]:
    """Return a response frame as chunks, or the job that encodes it if it has many elements."""
    if compiler.has_more_elements_than(body, compiler.MAX_ELEMENTS_PER_STEP):
        return encode_response_job(key, version, correlation_id, body)
    return encode_response(key, version, correlation_id, body)


def _frame_response(
    key: ApiKey, version: int, correlation_id: int, chunks: list[compiler.Chunk]
) -> list[compiler.Chunk]:
    size = sum(map(len, chunks)) + 4
    if response_header_version(key, version) == 0:
        return [_RESPONSE_HEADERS[0].pack(size, correlation_id), *chunks]
    return [_RESPONSE_HEADERS[1].pack(size + 1, correlation_id, 0), *chunks]


def total_frame_bytes(chunks: list[compiler.Chunk]) -> int:
    """Return the size of a whole frame with its prefix, read from its first chunk."""
    return int(_SIZE.unpack_from(chunks[0])[0]) + _SIZE.size
