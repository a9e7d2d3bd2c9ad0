"""Channel to the active controller: in this process, over the wire, in an envelope; located again when it moves."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.interbroker.controller_channel import FORWARDING_TIMEOUT_S, RETRY_S
from ottla.broker.interbroker.remote_controller import LEADER_CHECK_INTERVAL_S, RESPONSE_TIMEOUT_S
from ottla.broker.tests.controller_channel_fixture import LISTENER, NODE_ID, ControllerChannelFixture, sealed_response
from ottla.env.env import FOREVER_S
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import create_topics
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.consumer_protocol import DefaultPrincipalData
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
)
from ottla.wire.messages.envelope import EnvelopeResponse

BEAT = BrokerHeartbeatRequest(NODE_ID, 3, 5)
GONE = ProtocolError(ErrorCode.NOT_CONTROLLER)
CREATE = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("a", 1, 1)])
MADE = create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("a")])


@pytest.fixture
def fixture(monkeypatch: pytest.MonkeyPatch) -> ControllerChannelFixture:
    return ControllerChannelFixture(monkeypatch)


# ------------------------------------------------------------------ in this process


def test_local_active_controller_needs_no_connection(fixture: ControllerChannelFixture) -> None:
    fixture.local_controller.is_active = True
    fixture.local_controller.responses = [BrokerHeartbeatResponse(), MADE]

    async def scenario() -> None:
        assert await fixture.channel.submit(BEAT) == BrokerHeartbeatResponse()
        assert await fixture.channel.forward(fixture.forwardable_request(CREATE, 5), CREATE) is MADE
        assert trio.current_time() == 0

    fixture.run(scenario)
    assert fixture.local_controller.requests == [(BEAT, 2), (CREATE, 5)]
    assert fixture.local_controller.heartbeats == [(NODE_ID, 3)]  # also the controller's own broker has a lease
    assert fixture.net.connect_attempts == []


@pytest.mark.parametrize(
    ("answers", "count"),
    [([GONE, MADE], 2), ([GONE, GONE, MADE], 3), ([MADE], 1)],
)
def test_local_not_controller_is_retried_until_answered(
    fixture: ControllerChannelFixture, answers: list[Any], count: int
) -> None:
    fixture.local_controller.is_active = True
    fixture.local_controller.responses = answers

    async def scenario() -> None:
        assert await fixture.channel.submit(CREATE, 7) is MADE
        assert trio.current_time() == pytest.approx(RETRY_S * (count - 1))

    fixture.run(scenario)
    assert fixture.local_controller.requests == [(CREATE, 7)] * count


def test_local_os_error_is_raised(fixture: ControllerChannelFixture) -> None:
    fixture.local_controller.is_active = True
    fixture.local_controller.responses = [OSError("gone")]

    async def scenario() -> None:
        with pytest.raises(OSError, match="gone"):
            await fixture.channel.submit(BEAT)

    fixture.run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE])
def test_describe_quorum_is_sent_to_raft_and_retried_when_not_leader(
    fixture: ControllerChannelFixture, code: ErrorCode
) -> None:
    part = DescribeQuorumResponsePartitionData(0, code)
    first = DescribeQuorumResponse(topics=[DescribeQuorumResponseTopicData("__cluster_metadata", [part])])
    second = DescribeQuorumResponse(error_message="second")
    fixture.local_controller.is_active = True
    fixture.local_controller.responses = [first, second]
    request = DescribeQuorumRequest()

    async def scenario() -> None:
        answer = await fixture.channel.forward(fixture.forwardable_request(request, 2), request)
        assert answer is (second if code else first)

    fixture.run(scenario)
    assert fixture.local_controller.requests == [((request, LISTENER), 2)] * (2 if code else 1)


# ------------------------------------------------------------------ over the wire


@pytest.mark.behaviour("R-344")
def test_remote_requests_use_node_id_and_newest_common_version(
    fixture: ControllerChannelFixture,
) -> None:
    there = fixture.add_remote(1)
    there.versions[ApiKey.BROKER_HEARTBEAT] = (0, 1)
    there.responses = [BrokerHeartbeatResponse(is_caught_up=True), AlterPartitionResponse()]
    fixture.local_controller.address = ("h", 1)

    async def scenario() -> None:
        assert (await fixture.channel.submit(BEAT)).is_caught_up
        await fixture.channel.submit(AlterPartitionRequest(NODE_ID), 2)

    fixture.run(scenario, there)
    assert there.requests == [
        (ApiKey.BROKER_HEARTBEAT, 1, str(NODE_ID), BEAT),
        (ApiKey.ALTER_PARTITION, 2, str(NODE_ID), AlterPartitionRequest(NODE_ID)),
    ]
    assert fixture.net.connect_attempts == [("h", 1)]


def row(code: ErrorCode) -> AlterPartitionResponse:
    rows = [AlterPartitionResponsePartitionData(0), AlterPartitionResponsePartitionData(1, code)]
    return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(b"i" * 16, rows)])


@pytest.mark.behaviour("R-345")
@pytest.mark.parametrize(
    ("answer", "again"),
    [
        (AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER), True),
        (row(ErrorCode.NOT_CONTROLLER), True),
        (row(ErrorCode.FENCED_LEADER_EPOCH), False),
        (AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), False),
    ],
    ids=["top", "row", "another row", "another error"],
)
def test_not_controller_in_any_error_field_is_retried(
    fixture: ControllerChannelFixture, answer: Any, *, again: bool
) -> None:
    there = fixture.add_remote(1)
    there.responses = [answer, AlterPartitionResponse()]
    fixture.local_controller.address = ("h", 1)

    async def scenario() -> None:
        found = await fixture.channel.submit(AlterPartitionRequest(NODE_ID))
        assert found == (AlterPartitionResponse() if again else answer)

    fixture.run(scenario, there)
    assert len(there.requests) == 1 + again
    assert fixture.net.connect_attempts == [("h", 1)]


@pytest.mark.behaviour("R-345")
def test_disconnect_resends_request_to_new_leader(fixture: ControllerChannelFixture) -> None:
    old, new = fixture.add_remote(1), fixture.add_remote(2)
    fixture.local_controller.address = ("h", 1)

    def dies(request: Any) -> Any:
        fixture.net.accepted[-1].close()
        fixture.local_controller.address = ("h", 2)
        return BrokerHeartbeatResponse()

    old.responses, new.responses = [dies], [BrokerHeartbeatResponse(is_caught_up=True)]

    async def scenario() -> None:
        assert (await fixture.channel.submit(BEAT)).is_caught_up
        assert trio.current_time() == pytest.approx(RETRY_S)

    fixture.run(scenario, old, new)
    assert [x[3] for x in old.requests + new.requests] == [BEAT, BEAT]
    assert fixture.net.connect_attempts == [("h", 1), ("h", 2)]


def test_unresponsive_controller_is_left_when_leader_changes(fixture: ControllerChannelFixture) -> None:
    """A paused node sends no response, and its connections stay: the new leader is known long before they time out."""
    old, new = fixture.add_remote(1), fixture.add_remote(2)
    fixture.local_controller.address = ("h", 1)

    async def never(request: Any) -> Any:
        await trio.sleep_forever()

    old.responses, new.responses = [never], [BrokerHeartbeatResponse(is_caught_up=True)]

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:

            async def elect() -> None:
                await trio.sleep(3)
                fixture.local_controller.address = ("h", 2)

            nursery.start_soon(elect)
            assert (await fixture.channel.submit(BEAT)).is_caught_up
        assert 3 <= trio.current_time() <= 3 + LEADER_CHECK_INTERVAL_S + RETRY_S + 0.01

    fixture.run(scenario, old, new)


def test_request_to_former_leader_is_answered_locally_after_election(fixture: ControllerChannelFixture) -> None:
    old = fixture.add_remote(1)
    fixture.local_controller.address = ("h", 1)

    async def never(request: Any) -> Any:
        await trio.sleep_forever()

    old.responses = [never]
    fixture.local_controller.responses = [BrokerHeartbeatResponse()] * 2

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.channel.submit, BEAT)
            nursery.start_soon(fixture.channel.submit, BEAT)
            await trio.sleep(1)
            fixture.local_controller.is_active = True

    fixture.run(scenario, old)
    assert len(fixture.local_controller.requests) == 2


def test_unresponsive_leader_is_reconnected_after_timeout(fixture: ControllerChannelFixture) -> None:
    there = fixture.add_remote(1)
    fixture.local_controller.address = ("h", 1)

    async def never(request: Any) -> Any:
        await trio.sleep_forever()

    there.responses = [never, BrokerHeartbeatResponse()]

    async def scenario() -> None:
        await fixture.channel.submit(BEAT)
        assert trio.current_time() == pytest.approx(RESPONSE_TIMEOUT_S + RETRY_S)

    fixture.run(scenario, there)
    assert fixture.net.connect_attempts == [("h", 1)] * 2


@pytest.mark.parametrize("limit_s", [0.5, 4.5, 60.0])
def test_leader_lookup_times_out_with_request_timed_out(monkeypatch: pytest.MonkeyPatch, limit_s: float) -> None:
    fixture = ControllerChannelFixture(monkeypatch, limit_s)

    async def scenario() -> None:
        with pytest.raises(ProtocolError) as caught:
            await fixture.channel.submit(BEAT)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert trio.current_time() == pytest.approx(limit_s)

    fixture.run(scenario)


def test_connection_error_is_logged_once_per_address(
    fixture: ControllerChannelFixture, caplog: pytest.LogCaptureFixture
) -> None:
    there = fixture.add_remote(1)
    there.responses = [BrokerHeartbeatResponse()]
    fixture.local_controller.address = ("h", 2)
    caplog.set_level("INFO")

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.channel.submit, BEAT)
            await trio.sleep(5)
            fixture.local_controller.address = ("h", 1)
        fixture.local_controller.address = ("h", 2)
        with trio.move_on_after(5):
            await fixture.channel.submit(BEAT)

    fixture.run(scenario, there)
    assert len([r for r in caplog.records if "the controller at h:2" in r.getMessage()]) == 2


def test_request_without_timeout_waits_for_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    fixture = ControllerChannelFixture(monkeypatch, FOREVER_S)
    there = fixture.add_remote(1)
    there.responses = [AlterPartitionResponse()]

    async def scenario() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fixture.channel.submit, AlterPartitionRequest(NODE_ID))
            await trio.sleep(500)
            fixture.local_controller.address = ("h", 1)

    fixture.run(scenario, there)
    assert len(there.requests) == 1


def test_unsupported_request_raises_unsupported_version(fixture: ControllerChannelFixture) -> None:
    there = fixture.add_remote(1)
    fixture.local_controller.address = ("h", 1)

    async def scenario() -> None:
        with pytest.raises(ProtocolError) as caught:
            await fixture.channel.submit(CREATE, 7)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    fixture.run(scenario, there)


# ------------------------------------------------------------------ in an envelope


@pytest.mark.behaviour("R-304")
@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("192.168.1.2", bytes([192, 168, 1, 2])),
        ("::1", bytes(15) + b"\x01"),
        ("fe80::2%eth0", b"\xfe\x80" + bytes(13) + b"\x02"),
        ("a name", bytes(4)),
    ],
)
def test_envelope_contains_request_principal_and_client_address(
    fixture: ControllerChannelFixture, host: str, address: bytes
) -> None:
    there = fixture.add_remote(1)
    there.responses = [sealed_response(MADE, 5)]
    fixture.local_controller.address = ("h", 1)
    asking = fixture.forwardable_request(CREATE, 5, host)

    async def scenario() -> None:
        answer = await fixture.channel.forward(asking, CREATE)
        assert answer == create_topics.CreateTopicsResponse(topics=[create_topics.CreatableTopicResult("a")])

    fixture.run(scenario, there)
    ((key, version, client, envelope),) = there.requests
    assert (key, version, client) == (ApiKey.ENVELOPE, 0, str(NODE_ID))
    assert envelope.request_data == asking.frame
    principal = compiler.encode(DefaultPrincipalData("User", "bob"), 0)
    assert envelope.request_principal == bytes(2) + principal
    assert envelope.client_host_address == address


def code_row(code: ErrorCode) -> create_topics.CreateTopicsResponse:
    return create_topics.CreateTopicsResponse(
        topics=[create_topics.CreatableTopicResult("a", error_code=code, error_message=None)]
    )


@pytest.mark.behaviour("R-305")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (EnvelopeResponse(None, ErrorCode.CLUSTER_AUTHORIZATION_FAILED), code_row(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (EnvelopeResponse(None, ErrorCode.NONE), code_row(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (EnvelopeResponse(b"\0\0\0\1", ErrorCode.NONE), code_row(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (EnvelopeResponse(b"\0", ErrorCode.NONE), code_row(ErrorCode.UNKNOWN_SERVER_ERROR)),
        (EnvelopeResponse(None, ErrorCode.UNSUPPORTED_VERSION), None),
    ],
    ids=["refused", "nothing", "another's answer", "torn", "unreadable"],
)
def test_envelope_error_is_mapped_for_client(fixture: ControllerChannelFixture, answer: Any, expected: Any) -> None:
    there = fixture.add_remote(1)
    there.responses = [EnvelopeResponse(None, ErrorCode.NOT_CONTROLLER), answer]
    fixture.local_controller.address = ("h", 1)

    async def scenario() -> None:
        if expected is None:
            with pytest.raises(WireError):
                await fixture.channel.forward(fixture.forwardable_request(CREATE, 5), CREATE)
        else:
            assert await fixture.channel.forward(fixture.forwardable_request(CREATE, 5), CREATE) == expected

    fixture.run(scenario, there)
    assert len(there.requests) == 2


@pytest.mark.behaviour("R-346")
def test_controller_without_envelope_api_returns_unknown_server_error(fixture: ControllerChannelFixture) -> None:
    there = fixture.add_remote(1)
    del there.versions[ApiKey.ENVELOPE]
    fixture.local_controller.address = ("h", 1)

    async def scenario() -> None:
        answer = await fixture.channel.forward(fixture.forwardable_request(CREATE, 5), CREATE)
        assert answer == code_row(ErrorCode.UNKNOWN_SERVER_ERROR)

    fixture.run(scenario, there)
    assert there.requests == []


def test_forwarded_request_times_out_with_request_timed_out(fixture: ControllerChannelFixture) -> None:
    async def scenario() -> None:
        answer = await fixture.channel.forward(fixture.forwardable_request(CREATE, 5), CREATE)
        assert answer == code_row(ErrorCode.REQUEST_TIMED_OUT)
        assert trio.current_time() == pytest.approx(FORWARDING_TIMEOUT_S) == 60.0

    fixture.run(scenario)
