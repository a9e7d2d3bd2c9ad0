"""Envelope requests on the controller listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.handlers.controller.tests.test_controller_listener import (
    CREATE,
    MADE,
    NOT_ACTIVE,
    ControllerListenerFixture,
)
from ottla.wire.api_keys import ApiKey, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.framing import encode_request
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.consumer_protocol import DefaultPrincipalData
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.headers import ResponseHeader

BOB = bytes(2) + compiler.encode(DefaultPrincipalData("User", "bob"), 0)
ADDRESS = bytes([10, 1, 2, 3])


def enveloped(request: Any, version: int, **fields: Any) -> EnvelopeRequest:
    inner = encode_request(ApiKey(request.SPEC.key), version, 99, "the client", request)[4:]
    return EnvelopeRequest(**{"request_data": inner, "request_principal": BOB, "client_host_address": ADDRESS} | fields)


@pytest.mark.behaviour("R-304")
@pytest.mark.parametrize("version", [2, 4, 5, 7])
def test_envelope_response_contains_inner_header_and_response(version: int) -> None:
    listener = ControllerListenerFixture()
    listener.quorum.answer = MADE
    answer = listener.ask(enveloped(CREATE, version), 0)
    assert answer.error_code == 0
    head, pos = compiler.decode(
        ResponseHeader, response_header_version(ApiKey.CREATE_TOPICS, version), answer.response_data
    )
    assert head.correlation_id == 99
    assert compiler.decode_exact(CreateTopicsResponse, version, answer.response_data[pos:]).topics[0].name == "a"
    assert listener.quorum.received == [(CREATE, version)]


def test_envelope_with_large_request_is_decoded_in_slices() -> None:
    listener = ControllerListenerFixture()
    listener.quorum.answer = MADE
    many = CreateTopicsRequest([CreatableTopic(f"topic-{n}", 1, 1) for n in range(5_000)])
    assert listener.ask(enveloped(many, 7), 0).error_code == 0
    assert listener.quorum.received == [(many, 7)]


def quorum_answer(code: ErrorCode) -> DescribeQuorumResponse:
    part = DescribeQuorumResponsePartitionData(0, code)
    return DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [part])])


@pytest.mark.behaviour("R-305", "S-344")
@pytest.mark.parametrize(
    ("request_", "version", "answer", "code"),
    [
        (CREATE, 7, NOT_ACTIVE, ErrorCode.NOT_CONTROLLER),
        (CREATE, 7, ProtocolError(ErrorCode.POLICY_VIOLATION), ErrorCode.NONE),
        (DescribeQuorumRequest(), 2, quorum_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_CONTROLLER),
        (DescribeQuorumRequest(), 2, quorum_answer(ErrorCode.NONE), ErrorCode.NONE),
    ],
)
def test_envelope_not_controller_error_is_at_top_level(
    request_: Any, version: int, answer: Any, code: ErrorCode
) -> None:
    listener = ControllerListenerFixture()
    listener.quorum.answer = answer
    found = listener.ask(enveloped(request_, version), 0)
    assert found.error_code == code
    assert (found.response_data is None) == (code != ErrorCode.NONE)


def of_raw(raw: bytes) -> EnvelopeRequest:
    return EnvelopeRequest(raw, BOB, ADDRESS)


@pytest.mark.behaviour("R-304", "S-344")
@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (enveloped(CREATE, 7, client_host_address=b"12345"), ErrorCode.INVALID_REQUEST),
        (enveloped(CREATE, 7, client_host_address=b""), ErrorCode.INVALID_REQUEST),
        (enveloped(CREATE, 7, request_principal=b"\0\1" + BOB[2:]), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(CREATE, 7, request_principal=BOB + b"!"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(CREATE, 7, request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(BrokerHeartbeatRequest(), 0), ErrorCode.INVALID_REQUEST),
        (enveloped(enveloped(CREATE, 7), 0), ErrorCode.INVALID_REQUEST),
        (enveloped(DescribeClusterRequest(), 0), ErrorCode.INVALID_REQUEST),
        (of_raw(b"\0\0"), ErrorCode.UNSUPPORTED_VERSION),
        (of_raw(b"\x7f\xff" + enveloped(CREATE, 7).request_data[2:]), ErrorCode.UNSUPPORTED_VERSION),
        (of_raw(b"\0\x13\0\x09" + enveloped(CREATE, 7).request_data[4:]), ErrorCode.UNSUPPORTED_VERSION),
        (of_raw(enveloped(CREATE, 7).request_data[:-6]), ErrorCode.UNSUPPORTED_VERSION),
    ],
    ids=[
        "address",
        "no address",
        "principal's version",
        "long principal",
        "no principal",
        "not forwarded",
        "an envelope",
        "everybody's",
        "no header",
        "unknown api",
        "unknown version",
        "torn",
    ],
)
def test_invalid_envelope_returns_error_code(envelope: EnvelopeRequest, code: ErrorCode) -> None:
    listener = ControllerListenerFixture()
    assert listener.ask(envelope, 0) == EnvelopeResponse(None, code)
    assert listener.quorum.received == []


@pytest.mark.behaviour("S-344")
def test_envelope_principal_and_host_are_those_of_inner_request(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def handle(context: Any, request: Any) -> Any:
        seen.append(context)
        return MADE

    def found(module: str) -> Callable[..., Any]:
        return handle

    monkeypatch.setattr("ottla.broker.handlers.controller.envelope.load_handler", found)
    listener = ControllerListenerFixture()
    assert listener.ask(enveloped(CREATE, 7, client_host_address=bytes(15) + b"\1"), 0).error_code == 0
    (context,) = seen
    assert (context.key, context.version, context.client_id) == (ApiKey.CREATE_TOPICS, 7, "the client")
    assert [context.peer.principal, context.peer.host] == ["User:bob", "0:0:0:0:0:0:0:1"]
