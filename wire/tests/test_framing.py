"""Frames and headers."""

from __future__ import annotations

import struct

import pytest

from ottla.wire.api_keys import ApiKey, request_header_version, response_header_version
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import RequestHeaderCache, encode_request, encode_response, parse_frame_size, parse_request
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest
from ottla.wire.messages.metadata import MetadataRequest


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_size_that_cannot_be_is_refused(size: int) -> None:
    with pytest.raises(WireError):
        parse_frame_size(struct.pack(">i", size))


def test_a_request_is_read_as_it_was_written() -> None:
    frame = encode_request(ApiKey.METADATA, 12, 77, "me", MetadataRequest(None))
    assert parse_frame_size(frame) == len(frame) - 4
    request = parse_request(memoryview(frame)[4:])
    assert request[:4] == (ApiKey.METADATA, 12, 77, "me")


@pytest.mark.parametrize(
    "raw", [b"", b"\x00" * 7, struct.pack(">hhih", 99, 0, 1, -1), struct.pack(">hhih", 3, 77, 1, 40)]
)
def test_a_header_that_cannot_be_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        parse_request(memoryview(raw))


@pytest.mark.behaviour("P-1")
def test_an_unknown_api_versions_version_still_has_a_header() -> None:
    request = parse_request(memoryview(struct.pack(">hhi", 18, 99, 5) + b"\x00\x01c\x00whatever this is"))
    assert (request.key, request.version, request.correlation_id) == (ApiKey.API_VERSIONS, 99, 5)


@pytest.mark.behaviour("P-2")
def test_api_versions_answers_have_header_v0() -> None:
    assert response_header_version(ApiKey.API_VERSIONS, 4) == 0
    assert response_header_version(ApiKey.METADATA, 12) == 1
    assert request_header_version(ApiKey.API_VERSIONS, 3) == 2
    raw = b"".join(encode_response(ApiKey.API_VERSIONS, 3, 9, ApiVersionsResponse(error_code=35)))
    assert raw[4:10] == struct.pack(">ih", 9, 35)


def test_a_null_client_id_is_allowed() -> None:
    frame = encode_request(ApiKey.API_VERSIONS, 0, 1, None, ApiVersionsRequest())
    assert parse_request(memoryview(frame)[4:]).client_id == ""


def test_error_codes_know_whether_to_try_again() -> None:
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.INVALID_RECORD.retriable
    assert len(ErrorCode) == 135


def test_uuids_have_22_characters() -> None:
    raw = bytes(range(16))
    assert uuid_from_string(uuid_to_string(raw)) == raw
    assert len(uuid_to_string(raw)) == 22
    with pytest.raises(ValueError):
        uuid_from_string("AAAA")


def test_heads_are_read_as_one_by_one_whatever_came_before() -> None:
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
def test_a_head_that_is_cut_short_is_refused_also_after_a_whole_one(raw: bytes) -> None:
    heads = RequestHeaderCache()
    with pytest.raises(WireError):
        heads.parse_request(memoryview(raw))
    heads.parse_request(memoryview(encode_request(ApiKey.HEARTBEAT, 4, 1, "one", HeartbeatRequest("g", 3, "m"))[4:]))
    with pytest.raises(WireError):
        heads.parse_request(memoryview(raw))
