"""Request and response frames: an int32 size, a header with the correlation id, and the message.

No I/O; `RequestHeaderCache` is the only state. Source: Kafka protocol guide, "Protocol Primitives".
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from typing import NamedTuple

from ottla.wire.api_keys import ApiKey, request_header_version, request_spec, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.chunk_sequence import ChunkSequence, flatten_chunks
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
"""Response headers by version: size and correlation id, and in version 1 the number of tagged fields."""

_header_versions: dict[tuple[int, int], tuple[ApiKey, int]] = {}
"""Cache of (key, version) -> (API key, request header version), of existing versions only."""


class RequestFrame(NamedTuple):
    """Request frame (without its size prefix) with a decoded header and an undecoded body.

    ``client_id`` is empty if the header has none.
    """

    key: ApiKey
    version: int
    correlation_id: int
    client_id: str
    frame: memoryview
    body_position: int
    """Position of the message after the header in ``frame``."""
    response_version: int
    """Version of the response: that of the request, but 0 for ApiVersions in an unknown version."""


def parse_frame_size(prefix: bytes | bytearray | memoryview, limit: int = MAX_REQUEST_BYTES, pos: int = 0) -> int:
    """Return the size in bytes of a frame, without its prefix, from the four-byte prefix at ``pos``.

    Raises:
        WireError: the size is negative or above ``limit`` (``socket.request.max.bytes``).
    """
    (size,) = _SIZE.unpack_from(prefix, pos)
    if size < 0 or size > limit:
        raise WireError(f"a frame of {size} bytes; at most {limit}")
    return int(size)


def parse_request(frame: memoryview) -> RequestFrame:
    """Decode the header of a request frame (without its size prefix); the body is not decoded.

    Whether the API has the version is left to the caller to check. ApiVersions is answered even if it has not, so that
    a newer client can fall back (KIP-511).

    Raises:
        WireError: unknown API key, or a malformed header.
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
    """Parser of one connection's request headers, which reuses the last header if only the correlation id differs."""

    __slots__ = ("_answered", "_body", "_client_id", "_key", "_rest", "_start", "_version", "versions")

    def __init__(self) -> None:
        self.versions: dict[ApiKey, int] = {}
        """Version of the last request of each API; only a header that is not cached changes it."""
        self._start, self._rest = b"no four bytes", b""
        self._key, self._version, self._client_id, self._body, self._answered = ApiKey.PRODUCE, 0, "", 8, 0

    @property
    def last_request(self) -> tuple[ApiKey, int, str] | None:
        """API key, version and client id of the last request with a header of at most 512 bytes; None without one."""
        return (self._key, self._version, self._client_id) if len(self._start) == _KEY_AND_VERSION_BYTES else None

    def parse_request(self, frame: memoryview) -> RequestFrame:
        """Decode a request header as the function `parse_request`, and cache it if it has at most 512 bytes.

        If it differs from the cached header in the correlation id only, it is not decoded again.

        Raises:
            WireError: unknown API key, or a malformed header.
        """
        body = self._body
        if frame[:4] == self._start and frame[8:body] == self._rest:
            correlation_id = _CORRELATION(frame, 4)[0]
            return RequestFrame(self._key, self._version, correlation_id, self._client_id, frame, body, self._answered)
        request = parse_request(frame)
        if request.body_position <= _MAX_CACHED_HEADER_BYTES:
            self._key, self._version, _, self._client_id, _, self._body, self._answered = request
            self.versions[self._key] = self._version
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
    """Return a complete request frame, with its size prefix.

    Raises:
        WireError: ``body`` has a field that ``version`` does not support, or there is no such version.
    """
    header = RequestHeader(key, version, correlation_id, client_id)
    out = compiler.encode(header, request_header_version(key, version)) + compiler.encode(body, version)
    return _SIZE.pack(len(out)) + out


def encode_request_job(
    key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Message
) -> Generator[None, None, bytes]:
    """Encode a request frame like `encode_request`, as a job."""
    header = compiler.encode(
        RequestHeader(key, version, correlation_id, client_id), request_header_version(key, version)
    )
    chunks = yield from compiler.encode_job(body, version)
    out = b"".join((header, *chunks))
    return _SIZE.pack(len(out)) + out


def encode_response(key: ApiKey, version: int, correlation_id: int, body: Message) -> list[compiler.Chunk]:
    """Return a response frame with its size prefix as a list of chunks.

    Records fields are chunks of their own, unchanged: bytes, or a file range.

    Raises:
        WireError: ``body`` has a field that ``version`` does not support, or there is no such version.
    """
    return _frame_response(key, version, correlation_id, compiler.encode_chunks(body, version))


def encode_response_job(
    key: ApiKey, version: int, correlation_id: int, body: Message
) -> Generator[None, None, list[compiler.Chunk]]:
    """Encode a response frame like `encode_response`, as a job; it may empty arrays of ``body`` (`encode_job`)."""
    chunks = yield from compiler.encode_job(body, version)
    return _frame_response(key, version, correlation_id, chunks)


def start_encoding_response(
    key: ApiKey, version: int, correlation_id: int, body: Message
) -> list[compiler.Chunk] | Generator[None, None, list[compiler.Chunk]]:
    """Return a response frame as a list of chunks, or a job that encodes it.

    The job is for a ``body`` with more than `compiler.MAX_ELEMENTS_PER_STEP` array elements.
    """
    if compiler.has_more_elements_than(body, compiler.MAX_ELEMENTS_PER_STEP):
        return encode_response_job(key, version, correlation_id, body)
    return encode_response(key, version, correlation_id, body)


def _frame_response(
    key: ApiKey, version: int, correlation_id: int, chunks: list[compiler.Chunk]
) -> list[compiler.Chunk]:
    size = sum(map(len, chunks)) + 4
    if ChunkSequence in map(type, chunks):
        chunks = list(flatten_chunks(chunks))
    if response_header_version(key, version) == 0:
        return [_RESPONSE_HEADERS[0].pack(size, correlation_id), *chunks]
    return [_RESPONSE_HEADERS[1].pack(size + 1, correlation_id, 0), *chunks]


def total_frame_bytes(chunks: list[compiler.Chunk]) -> int:
    """Return the size in bytes of an encoded frame with its size prefix; reads that prefix in the first chunk."""
    return int(_SIZE.unpack_from(chunks[0])[0]) + _SIZE.size


def split_chunks(chunks: list[compiler.Chunk], group_bytes: int) -> Iterator[list[compiler.Chunk]]:
    """Yield consecutive chunks in groups of at least ``group_bytes`` bytes in all; the last group may be smaller."""
    group: list[compiler.Chunk] = []
    size_bytes = 0
    for chunk in chunks:
        group.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= group_bytes:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group
