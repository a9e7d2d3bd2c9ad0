"""Frames and headers."""

from __future__ import annotations

import struct

import pytest

from ottla.wire.api_keys import ApiKey, request_header_version, response_header_version
from ottla.wire.codec.chunk_sequence import ChunkSequence
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import (
    RequestHeaderCache,
    encode_request,
    encode_response,
    parse_frame_size,
    parse_request,
    total_frame_bytes,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_parse_frame_size_invalid_raises_wire_error(size: int) -> None:
    with pytest.raises(WireError):
        parse_frame_size(struct.pack(">i", size))


def test_encode_request_survives_round_trip() -> None:
    frame = encode_request(ApiKey.METADATA, 12, 77, "me", MetadataRequest(None))
    assert parse_frame_size(frame) == len(frame) - 4
    request = parse_request(memoryview(frame)[4:])
    assert request[:4] == (ApiKey.METADATA, 12, 77, "me")


@pytest.mark.parametrize(
    "raw", [b"", b"\x00" * 7, struct.pack(">hhih", 99, 0, 1, -1), struct.pack(">hhih", 3, 77, 1, 40)]
)
def test_parse_request_invalid_header_raises_wire_error(raw: bytes) -> None:
    with pytest.raises(WireError):
        parse_request(memoryview(raw))


@pytest.mark.behaviour("P-1")
def test_parse_request_unknown_api_versions_version_returns_header() -> None:
    request = parse_request(memoryview(struct.pack(">hhi", 18, 99, 5) + b"\x00\x01c\x00whatever this is"))
    assert (request.key, request.version, request.correlation_id) == (ApiKey.API_VERSIONS, 99, 5)


@pytest.mark.behaviour("P-2")
def test_api_versions_response_has_header_v0() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert response_header_version(ApiKey.METADATA, 12) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    raw = b"".join(encode_response(ApiKey.API_VERSIONS, 3, 9, ApiVersionsResponse(error_code=35)))
    assert raw[4:10] == struct.pack(">ih", 9, 35)


def test_encode_response_with_records_of_several_chunks_joins_none() -> None:
    pieces = [b"abc", memoryview(b"defgh")]

    def fetched(records: object) -> FetchResponse:
        rows = [PartitionData(0, records=records), PartitionData(1, records=b"x")]
        return FetchResponse(responses=[FetchableTopicResponse("t", partitions=rows)])

    chunks = encode_response(ApiKey.FETCH, 12, 7, fetched(ChunkSequence(pieces)))
    assert [chunk for chunk in chunks if any(chunk is piece for piece in pieces)] == pieces
    assert b"".join(chunks) == b"".join(encode_response(ApiKey.FETCH, 12, 7, fetched(b"abcdefgh")))
    assert len(b"".join(chunks)) == total_frame_bytes(chunks)


def test_parse_request_null_client_id_is_empty() -> None:
    frame = encode_request(ApiKey.API_VERSIONS, 0, 1, None, ApiVersionsRequest())
    assert parse_request(memoryview(frame)[4:]).client_id == ""


def test_error_code_retriable_separates_retriable_codes() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.INVALID_RECORD.retriable
    assert len(ErrorCode) == 135


def test_uuid_to_string_returns_22_characters() -> None:
    raw = bytes(range(16))
    assert uuid_from_string(uuid_to_string(raw)) == raw
    assert len(uuid_to_string(raw)) == 22
    with pytest.raises(ValueError):
        uuid_from_string("AAAA")


def test_request_header_cache_equals_uncached_parsing() -> None:
    body = HeartbeatRequest("g", 3, "m")
    frames = [
        memoryview(encode_request(key, version, number, client, message)[4:])
        for number, (key, version, client, message) in enumerate(
            [
                (ApiKey.HEARTBEAT, 4, "one", body),
                (ApiKey.HEARTBEAT, 4, "one", body),
                (ApiKey.HEARTBEAT, 4, "two", body),
                (ApiKey.HEARTBEAT, 4, "on", body),
                (ApiKey.HEARTBEAT, 4, None, body),
                (ApiKey.HEARTBEAT, 4, "", body),
                (ApiKey.HEARTBEAT, 3, "", body),
                (ApiKey.HEARTBEAT, 0, "one", body),
                (ApiKey.HEARTBEAT, 0, "one", body),
                (ApiKey.HEARTBEAT, 4, "c" * 600, body),
                (ApiKey.HEARTBEAT, 4, "one", body),
            ]
        )
    ]
    heads = RequestHeaderCache()
    for frame in frames:
        assert heads.parse_request(frame) == parse_request(frame)


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\x0c\0\x04\0\0\0", b"\0\x0c\0\x04\0\0\0\1\0\3on"])
def test_request_header_cache_truncated_header_raises_wire_error(raw: bytes) -> None:
    heads = RequestHeaderCache()
    with pytest.raises(WireError):
        heads.parse_request(memoryview(raw))
    heads.parse_request(memoryview(encode_request(ApiKey.HEARTBEAT, 4, 1, "one", HeartbeatRequest("g", 3, "m"))[4:]))
    with pytest.raises(WireError):
        heads.parse_request(memoryview(raw))
