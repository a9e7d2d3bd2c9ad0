"""Requests of a connection that meet faults."""

from __future__ import annotations

import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.faults.fault_rule import FaultLimits, FaultRules, parse_fault
from ottla.broker.faults.faulty_dispatcher import FaultyDispatcher, first_half, named_topics
from ottla.broker.fetch_sessions.fetch_session import CachedPartition
from ottla.broker.network.connection import Connection
from ottla.broker.network.secure_connection import SecureConnection
from ottla.broker.network.tests.test_secure_connection import listener_security
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.env.disk import FileSlice
from ottla.wire.api_keys import ApiKey, response_class
from ottla.wire.codec import compiler
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest
from ottla.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

BEAT = ApiKey.HEARTBEAT
TOPIC_ID = b"i" * 16


class FakeSessions(dict[int, Any]):
    """Fetch sessions by id."""

    def remove(self, session_id: int) -> Any:
        return self.pop(session_id, None)


class FaultFixture(DispatcherFixture):
    """A dispatcher with faults, whose handlers are the test's and count their calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch)
        self.rules = FaultRules()
        self.handled = 0
        self.services.metadata = SimpleNamespace(image=SimpleNamespace(topic_names={TOPIC_ID: "orders"}))
        self.services.fetch_sessions = FakeSessions()
        self.dispatcher = FaultyDispatcher(self.rules, self.services, self.apis)
        self.serve(BEAT, self._beat)

    def _beat(self, context: Any, request: Any) -> HeartbeatResponse:
        self.handled += 1
        return HeartbeatResponse(error_code=7)

    def serve_as_broker(self, key: ApiKey, handler: Callable[[Any, Any], Any]) -> None:
        """Serve an API with its own layout of errors."""
        spec = BROKER_APIS[key]
        self.serve(key, handler, spec.min_version, spec.max_version, error_response=spec.error_response)

    def add(self, limits: FaultLimits = FaultLimits(), **fields: Any) -> None:  # noqa: B008
        self.rules.add(parse_fault({"api": "Heartbeat", **fields}), limits)

    def send(self, *frames: bytes) -> ClientStream:
        """Serve a connection that sends requests and then reads on; return its client."""
        client = ClientStream()
        client.send_bytes(b"".join(frames))

        async def run() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(Connection(self.dispatcher, client).serve)
                await trio.sleep(100)
                client.disconnect()

        in_virtual_time(run)
        return client


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> FaultFixture:
    return FaultFixture(monkeypatch)


def beats(count: int = 2, version: int = 1) -> bytes:
    return b"".join(frame(BEAT, version, n, HeartbeatRequest("g", 0, "m")) for n in range(count))


def answers(client: ClientStream) -> list[tuple[int, int]]:
    """Correlation ids and error codes of the responses."""
    return [(number, answer.error_code) for number, answer in client.responses(BEAT, 1)]  # type: ignore[attr-defined]


def test_request_without_fault_is_handled(stage: FaultFixture) -> None:
    assert answers(stage.send(beats())) == [(0, 7), (1, 7)]


def test_error_is_answered_without_the_handler(stage: FaultFixture) -> None:
    stage.add(FaultLimits(times=1), fault="error", code="REBALANCE_IN_PROGRESS")
    assert answers(stage.send(beats())) == [(0, 27), (1, 7)]
    assert stage.handled == 1


def test_delay_holds_up_the_requests_behind_it(stage: FaultFixture) -> None:
    stage.add(FaultLimits(on_call=2), fault="delay", ms=5000)
    times: list[float] = []
    stage.serve(BEAT, lambda context, request: times.append(trio.current_time()) or HeartbeatResponse(error_code=7))
    assert answers(stage.send(beats(3))) == [(0, 7), (1, 7), (2, 7)]
    assert [round(moment - times[0], 3) for moment in times] == [0, 5, 5]


def test_delay_and_error_apply_together(stage: FaultFixture) -> None:
    stage.add(fault="delay", ms=1000)
    stage.add(fault="delay", ms=500)
    stage.add(fault="error", code="REBALANCE_IN_PROGRESS")
    assert answers(stage.send(beats(1))) == [(0, 27)]
    assert [rule.applied for rule in stage.rules.list()] == [1, 1, 1]


@pytest.mark.parametrize(("handled", "count"), [(False, 0), (True, 1)])
def test_disconnect_answers_earlier_requests_first(stage: FaultFixture, *, handled: bool, count: int) -> None:
    stage.add(FaultLimits(on_call=2), fault="disconnect", handled=handled)
    client = stage.send(beats(3))
    assert answers(client) == [(0, 7)]
    assert client.is_closed
    assert stage.handled == 1 + count


@pytest.mark.parametrize(("handled", "count"), [(False, 0), (True, 1)])
def test_drop_leaves_out_a_response_and_keeps_the_connection(stage: FaultFixture, *, handled: bool, count: int) -> None:
    stage.add(FaultLimits(on_call=1), fault="drop", handled=handled)
    assert answers(stage.send(beats(2))) == [(1, 7)]
    assert stage.handled == 1 + count


def test_throttle_sets_the_throttle_time_and_mutes_the_connection(stage: FaultFixture) -> None:
    stage.add(FaultLimits(times=1), fault="throttle", ms=3000)
    times: list[float] = []
    stage.serve(BEAT, lambda context, request: times.append(trio.current_time()) or HeartbeatResponse())
    client = stage.send(beats(2))
    assert [answer.throttle_time_ms for _, answer in client.responses(BEAT, 1)] == [3000, 0]  # type: ignore[attr-defined]
    assert round(times[1] - times[0], 3) == 3


def test_throttle_does_not_change_a_response_that_a_handler_keeps(stage: FaultFixture) -> None:
    kept = HeartbeatResponse()
    stage.serve(BEAT, lambda context, request: kept)
    stage.add(fault="throttle", ms=3000)
    stage.send(beats(1))
    assert kept.throttle_time_ms == 0


def test_half_response_is_followed_by_a_disconnection(stage: FaultFixture) -> None:
    whole = stage.send(beats(1)).received
    stage.add(FaultLimits(on_call=2), fault="half_response")
    client = stage.send(beats(3))
    assert client.received == whole + struct.pack(">ii", len(whole) - 4, 1)[: len(whole) // 2]
    assert client.is_closed


def test_half_of_a_response_cuts_files() -> None:
    file: Any = SimpleNamespace()
    half = first_half([b"head", FileSlice(file, 10, 100), b"tail"], 108)
    assert half[0] == b"head"
    assert (half[1].offset, half[1].size_bytes, len(half)) == (10, 50, 2)


def test_fault_of_a_client_spares_others(stage: FaultFixture) -> None:
    stage.add(fault="disconnect", client_id="other")
    assert answers(stage.send(beats(1))) == [(0, 7)]


def test_produce_without_acks_is_answered_by_a_disconnection(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.PRODUCE, lambda context, request: None)
    stage.add(fault="error", api="Produce", code="NOT_LEADER_OR_FOLLOWER")
    client = stage.send(frame(ApiKey.PRODUCE, 9, 1, ProduceRequest(acks=0)))
    assert client.is_closed
    assert not client.received


def test_error_without_place_in_the_response_closes_the_connection(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    stage.add(fault="error", api="Fetch", code="NOT_LEADER_OR_FOLLOWER")
    client = stage.send(frame(ApiKey.FETCH, 4, 1, FetchRequest()))
    assert client.is_closed
    assert not client.received


@pytest.mark.parametrize("version", [0, 3, 4])
def test_unsupported_version_of_api_versions_is_answered_in_version_0(stage: FaultFixture, version: int) -> None:
    stage.serve_as_broker(ApiKey.API_VERSIONS, lambda context, request: ApiVersionsResponse())
    stage.add(fault="error", api="ApiVersions", code="UNSUPPORTED_VERSION")
    client = stage.send(frame(ApiKey.API_VERSIONS, version, 1, ApiVersionsRequest()))
    (response,) = [
        compiler.decode_exact(response_class(ApiKey.API_VERSIONS), 0, client.received[8:]),
    ]
    assert response == ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])


@pytest.mark.parametrize(
    "body",
    [
        ProduceRequest(topic_data=[TopicProduceData("orders")]),
        ProduceRequest(topic_data=[TopicProduceData("", TOPIC_ID, [PartitionProduceData()])]),
        FetchRequest(topics=[FetchTopic("", TOPIC_ID, [FetchPartition()])]),
        CreateTopicsRequest([CreatableTopic("orders")]),
        DeleteTopicsRequest(topic_names=["orders"]),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("orders")])]),
    ],
    ids=lambda body: type(body).__name__,
)
def test_topics_of_a_request_are_found(body: Any) -> None:
    assert set(named_topics(body, {TOPIC_ID: "orders"})) == {"orders"}


def fetch(**fields: Any) -> bytes:
    return frame(ApiKey.FETCH, 17, 1, FetchRequest(**fields))


def test_fetch_in_a_session_has_the_topics_of_the_session(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    stage.services.fetch_sessions[5] = SimpleNamespace(partitions={0: SimpleNamespace(topic="orders")})
    stage.add(fault="drop", api="Fetch", topic="orders")
    stage.send(fetch(session_id=5))
    stage.send(fetch(session_id=6))
    assert [rule.applied for rule in stage.rules.list()] == [1]


def fetch_answer(client: ClientStream) -> Any:
    ((_, answer),) = client.responses(ApiKey.FETCH, 17)
    return answer


def test_error_of_a_fetch_is_that_of_its_partitions(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    stage.add(fault="error", api="Fetch", code="NOT_LEADER_OR_FOLLOWER")
    answer = fetch_answer(stage.send(fetch(topics=[FetchTopic("", TOPIC_ID, [FetchPartition(3)])])))
    assert answer.error_code == 0
    ((part,),) = [topic.partitions for topic in answer.responses]
    assert (part.partition_index, part.error_code, part.high_watermark) == (3, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert part.records is not None, "librdkafka cannot parse null records"


def test_error_of_a_fetch_in_a_session_is_that_of_the_partitions_of_the_session(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    parts = [CachedPartition("orders", TOPIC_ID, FetchPartition(number)) for number in (3, 4)]
    stage.services.fetch_sessions = FakeSessions({5: SimpleNamespace(partitions=dict(enumerate(parts)))})
    stage.add(fault="error", api="Fetch", code="NOT_LEADER_OR_FOLLOWER")
    named = [FetchTopic("", TOPIC_ID, [FetchPartition(5)])]
    forgotten = [ForgottenTopic("", TOPIC_ID, [3])]
    request = fetch(session_id=5, session_epoch=1, topics=named, forgotten_topics_data=forgotten)
    answer = fetch_answer(stage.send(request))
    assert (answer.error_code, answer.session_id) == (0, 0)
    rows = [(x.partition_index, x.error_code) for topic in answer.responses for x in topic.partitions]
    assert rows == [(4, ErrorCode.NOT_LEADER_OR_FOLLOWER), (5, ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert all(x.records is not None for topic in answer.responses for x in topic.partitions)
    assert stage.services.fetch_sessions == {}


@pytest.mark.parametrize("epoch", [0, -1])
def test_error_of_a_full_fetch_names_no_partition_of_the_session(stage: FaultFixture, epoch: int) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    part = CachedPartition("orders", TOPIC_ID, FetchPartition(3))
    stage.services.fetch_sessions = FakeSessions({5: SimpleNamespace(partitions={0: part})})
    stage.add(fault="error", api="Fetch", code="NOT_LEADER_OR_FOLLOWER")
    answer = fetch_answer(stage.send(fetch(session_id=5, session_epoch=epoch)))
    assert (answer.error_code, answer.responses) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])


def test_session_error_of_a_fetch_is_that_of_the_request(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    stage.add(fault="error", api="Fetch", code="FETCH_SESSION_ID_NOT_FOUND")
    answer = fetch_answer(stage.send(fetch(session_id=5, session_epoch=1)))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_fetch_of_a_follower_meets_no_fault(stage: FaultFixture) -> None:
    stage.serve_as_broker(ApiKey.FETCH, lambda context, request: FetchResponse())
    stage.add(fault="drop", api="Fetch")
    stage.send(fetch(replica_state=ReplicaState(2)), fetch())
    assert [(rule.calls, rule.applied) for rule in stage.rules.list()] == [(1, 1)]


def test_connection_with_faults_prepares_no_request(stage: FaultFixture) -> None:
    peers = []
    stage.serve(BEAT, lambda context, request: peers.append(context.peer) or HeartbeatResponse())
    stage.send(beats(1))
    assert not peers[0].prepares_requests
    assert Dispatcher.handle_request is not FaultyDispatcher.handle_request


def test_undecodable_request_with_a_fault_closes_the_connection(stage: FaultFixture) -> None:
    stage.add(fault="error", code="REBALANCE_IN_PROGRESS", topic="t")
    stage.add(fault="error", code="REBALANCE_IN_PROGRESS")
    raw = beats(1)[4:-2]
    client = stage.send(struct.pack(">i", len(raw)) + raw)
    assert client.is_closed
    assert not client.received


@pytest.mark.parametrize(
    ("fault", "moments"),
    [
        ({"fault": "delay", "ms": 5000}, [5, 5]),
        ({"fault": "drop"}, [0]),
        ({"fault": "drop", "handled": True}, [0]),
        ({"fault": "throttle", "ms": 5000}, [0, 5]),
        ({"fault": "disconnect"}, []),
        ({"fault": "disconnect", "handled": True}, []),
    ],
)
def test_fault_of_api_versions_before_a_login(stage: FaultFixture, fault: dict[str, Any], moments: list[float]) -> None:
    versions, handshake = ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE
    stage.serve(versions, lambda context, request: ApiVersionsResponse())
    stage.add(api="ApiVersions", **fault)
    client, seen = ClientStream(), []
    client.send_bytes(frame(versions, 3, 1, ApiVersionsRequest("a", "1")))
    client.send_bytes(frame(handshake, 1, 2, SaslHandshakeRequest("PLAIN")))

    async def send(chunks: Any) -> None:
        seen.append(round(trio.current_time() - began_s))

    async def run() -> None:
        nonlocal began_s
        began_s, client.send = trio.current_time(), send  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(SecureConnection(stage.dispatcher, client, listener_security()).serve)
            await trio.sleep(100)
            client.disconnect()

    began_s = 0.0
    in_virtual_time(run)
    assert seen == moments
