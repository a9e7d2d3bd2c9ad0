"""Fetch sessions (KIP-227, KIP-516), by the rules of ``FetchSession.java``."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.config.limits import MIN_FETCH_SESSION_EVICTION_MS
from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.fetch_sessions.fetch_session_cache import FetchSessionCache
from ottla.broker.tests.handler_fixture import HandlerFixture, topic_id_of
from ottla.broker.tests.run_steps import run_steps
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch


def request(
    session: int = 0,
    epoch: int = 0,
    wanted: dict[str, tuple[int, ...]] | None = None,
    forgotten: dict[str, tuple[int, ...]] | None = None,
    *,
    ids: bool = True,
    offset: int = 0,
) -> fetch.FetchRequest:
    topics = [
        fetch.FetchTopic(
            "" if ids else name,
            topic_id_of(name) if ids else ZERO_UUID,
            [fetch.FetchPartition(p, fetch_offset=offset, partition_max_bytes=1 << 20) for p in numbers],
        )
        for name, numbers in (wanted or {}).items()
    ]
    gone = [
        fetch.ForgottenTopic("" if ids else name, topic_id_of(name) if ids else ZERO_UUID, list(numbers))
        for name, numbers in (forgotten or {}).items()
    ]
    return fetch.FetchRequest(session_id=session, session_epoch=epoch, topics=topics, forgotten_topics_data=gone)


class SessionConsumer:
    """Consumer with the node's fetch sessions."""

    def __init__(self, slots: int = 3) -> None:
        self.fixture = HandlerFixture()
        self.now_ms = 0.0
        self.fixture.env.monotonic_ms = lambda: self.now_ms  # type: ignore[method-assign]
        self.sessions = FetchSessionCache(self.fixture.env, slots)  # type: ignore[arg-type]

    def ask(self, request: fetch.FetchRequest, version: int = 13) -> Any:
        context = self.fixture.context(ApiKey.FETCH, version)
        return run_steps(self.sessions.new_context(self.fixture.hosted.image.topic_names, version, request, context))

    def answer(self, request: fetch.FetchRequest, version: int = 13, **changes: Any) -> fetch.FetchResponse:
        """Send a request, and answer every partition with ``changes``."""
        context = self.ask(request, version)
        assert not isinstance(context, fetch.FetchResponse), context.error_code
        rows = [
            (want, fetch.PartitionData(want.partition, **{"high_watermark": 5, "records": b"", **changes}))
            for want in context.requested_partitions()
        ]
        out: fetch.FetchResponse = run_steps(context.build_response(rows))
        return out

    def names(self, request: fetch.FetchRequest, version: int = 13) -> list[tuple[str | None, int]]:
        return [(want.topic, want.partition) for want in self.ask(request, version).requested_partitions()]


def consumer_of_two_topics() -> SessionConsumer:
    """Return a consumer of a node that hosts the topics a and b."""
    out = SessionConsumer()
    for name in ("a", "b"):
        out.fixture.hosted.host(name)
    return out


@pytest.fixture
def reader() -> SessionConsumer:
    return consumer_of_two_topics()


def shown(response: fetch.FetchResponse) -> list[tuple[str, int]]:
    return [(t.topic, p.partition_index) for t in response.responses for p in t.partitions]


def yields(reader: SessionConsumer, body: fetch.FetchRequest) -> int:
    """Return how often the job that creates the context of a request yields."""
    return sum(1 for _ in reader.sessions.new_context({}, 13, body, reader.fixture.context(ApiKey.FETCH, 13)))


def test_full_fetch_opens_session_for_incremental_fetches(reader: SessionConsumer) -> None:
    first = reader.answer(request(wanted={"a": (0, 1), "b": (0,)}))
    assert first.session_id != 0
    assert shown(first) == [("a", 0), ("a", 1), ("b", 0)]
    assert reader.names(request(first.session_id, 1)) == [("a", 0), ("a", 1), ("b", 0)]


def test_final_epoch_closes_session_and_opens_none(reader: SessionConsumer) -> None:
    first = reader.answer(request(wanted={"a": (0,)}))
    last = reader.answer(request(first.session_id, -1, {"a": (0,)}))
    assert (last.session_id, len(reader.sessions)) == (0, 0)
    assert reader.ask(request(first.session_id, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_epoch_0_with_session_id_replaces_that_session(reader: SessionConsumer) -> None:
    first = reader.answer(request(wanted={"a": (0,)}))
    second = reader.answer(request(first.session_id, 0, {"b": (0,)}))
    assert len(reader.sessions) == 1
    assert reader.names(request(second.session_id, 1)) == [("b", 0)]


def test_old_versions_and_empty_fetches_open_no_session(reader: SessionConsumer) -> None:
    assert reader.answer(request(wanted={"a": (0,)}, ids=False), version=6).session_id == 0
    assert reader.answer(request()).session_id == 0
    assert reader.answer(request(wanted={"a": (0,)}, ids=False), version=7).session_id != 0


REFUSED = [
    pytest.param(1, 1, True, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, id="no such session"),
    pytest.param(0, 2, True, ErrorCode.INVALID_FETCH_SESSION_EPOCH, id="an epoch ahead"),
    pytest.param(0, 1, False, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, id="names where ids were spoken"),
]


@pytest.mark.parametrize(("off", "epoch", "ids", "code"), REFUSED)
def test_session_request_with_wrong_id_epoch_or_id_kind_is_refused(
    reader: SessionConsumer, off: int, epoch: int, ids: bool, code: ErrorCode
) -> None:
    session = reader.answer(request(wanted={"a": (0,)})).session_id + off
    assert reader.ask(request(session, epoch, {"a": (0,)}, ids=ids), 13 if ids else 12).error_code == code


def test_session_epoch_increments_and_wraps_to_1(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0,)})).session_id
    for epoch in (1, 2, 3):
        reader.answer(request(session, epoch))
    assert reader.ask(request(session, 3)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    reader.sessions._sessions[session].epoch = 2**31 - 1
    reader.answer(request(session, 2**31 - 1))
    assert shown(reader.answer(request(session, 1))) == []


def test_incremental_fetch_adds_updates_and_forgets_partitions(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0, 1, 2), "b": (0, 1)})).session_id
    context = reader.ask(request(session, 1, {"a": (1, 7)}, {"a": (0,), "b": (1, 9)}, offset=42))
    places = {(w.topic, w.partition): w.fetch_offset for w in context.requested_partitions()}
    assert places == {("a", 1): 42, ("a", 2): 0, ("b", 0): 0, ("a", 7): 42}


def test_remove_of_session_closes_and_returns_it(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0, 1)})).session_id
    removed = reader.sessions.remove(session)
    assert removed is not None
    assert (removed.id, len(removed.partitions), len(reader.sessions)) == (session, 2, 0)
    assert reader.sessions.remove(session) is None
    assert reader.ask(request(session, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_without_partitions_is_closed(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0,)})).session_id
    assert reader.answer(request(session, 1, forgotten={"a": (0,)})).session_id == 0
    assert len(reader.sessions) == 0


CHANGED_FIELDS = [
    pytest.param({"records": b"x"}, True, id="records"),
    pytest.param({"error_code": 3}, True, id="an error"),
    pytest.param({"high_watermark": 6}, True, id="a new high watermark"),
    pytest.param({"log_start_offset": 1}, True, id="a new log start"),
    pytest.param({"diverging_epoch": fetch.EpochEndOffset(0, 3)}, True, id="a diverging epoch"),
    pytest.param({}, False, id="all as it was"),
]


@pytest.mark.parametrize(("changes", "expected"), CHANGED_FIELDS)
def test_incremental_response_contains_only_changed_partitions(
    reader: SessionConsumer, changes: dict[str, Any], expected: bool
) -> None:
    session = reader.answer(request(wanted={"a": (0,)}), log_start_offset=0).session_id
    answer = reader.answer(request(session, 1), **{"log_start_offset": 0, **changes})
    assert shown(answer) == ([("a", 0)] if expected else [])
    assert answer.session_id == session


def test_partition_with_error_is_included_in_next_response(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0,)})).session_id
    reader.answer(request(session, 1), error_code=6)
    assert shown(reader.answer(request(session, 2))) == [("a", 0)]
    assert shown(reader.answer(request(session, 3))) == []


def test_partition_with_records_moves_to_end_of_session(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0, 1), "b": (0,)})).session_id
    context = reader.ask(request(session, 1))
    rows = [
        (w, fetch.PartitionData(w.partition, high_watermark=5, records=b"x" * (w.partition == 0)))
        for w in context.requested_partitions()
    ]
    assert shown(run_steps(context.build_response(rows))) == [("a", 0), ("b", 0)]
    assert reader.names(request(session, 2)) == [("a", 1), ("a", 0), ("b", 0)]


def test_unknown_topic_id_is_served_when_it_becomes_known(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"late": (0,)}), error_code=100).session_id
    assert reader.names(request(session, 1)) == [(None, 0)]
    reader.fixture.hosted.host("late")
    assert reader.names(request(session, 2)) == [("late", 0)]
    assert reader.names(request(session, 3, {"late": (0,)})) == [("late", 0)]  # named again: still one partition
    assert shown(reader.answer(request(session, 4), records=b"x")) == [("late", 0)]
    reader.answer(request(session, 5, forgotten={"late": (0,)}))
    assert len(reader.sessions) == 0


def test_deleted_topic_can_be_forgotten_by_its_id(reader: SessionConsumer) -> None:
    session = reader.answer(request(wanted={"a": (0,), "b": (0,)})).session_id
    reader.fixture.hosted.image = MetadataImage()
    assert reader.names(request(session, 1, {"a": (0,)}, {"b": (0,)})) == [("a", 0)]


def test_full_cache_evicts_only_session_idle_for_two_minutes() -> None:
    reader = SessionConsumer(slots=2)
    ids = []
    for _ in range(2):
        ids.append(reader.answer(request(wanted={"a": (0,)})).session_id)
        reader.now_ms += 1
    reader.now_ms = MIN_FETCH_SESSION_EVICTION_MS - 1
    assert reader.answer(request(wanted={"a": (0,)})).session_id == 0
    reader.now_ms = MIN_FETCH_SESSION_EVICTION_MS
    assert reader.answer(request(wanted={"a": (0,)})).session_id != 0
    assert reader.ask(request(ids[0], 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    reader.now_ms = 2 * MIN_FETCH_SESSION_EVICTION_MS
    reader.answer(request(ids[1], 1))
    assert reader.answer(request(wanted={"a": (0,)})).session_id != 0
    assert (
        len(reader.ask(request(ids[1], 2)).requested_partitions()) == 1
    )  # used just now, so the other one was evicted
    assert SessionConsumer(slots=0).answer(request(wanted={"a": (0,)})).session_id == 0


@pytest.mark.parametrize(
    ("draws", "session_id"), [([0.0], 1), ([0.9999999999999999], 2**31 - 1), ([0.5], 2**30), ([0.0, 0.0, 0.5], 2**30)]
)
def test_session_id_is_random_positive_and_unique(reader: SessionConsumer, draws: list[float], session_id: int) -> None:
    if len(draws) > 1:
        reader.fixture.env.random = lambda: 0.0  # type: ignore[method-assign]
        reader.answer(request(wanted={"a": (0,)}))
        draws = draws[1:]
    left = iter(draws)
    reader.fixture.env.random = lambda: next(left)  # type: ignore[method-assign]
    assert reader.answer(request(wanted={"a": (0,)})).session_id == session_id


@pytest.mark.parametrize(
    ("idle_ms", "evicted"),
    [(0, False), (MIN_FETCH_SESSION_EVICTION_MS - 1, False), (MIN_FETCH_SESSION_EVICTION_MS, True)],
)
def test_least_recently_used_session_is_evicted_after_two_minutes_idle(idle_ms: int, *, evicted: bool) -> None:
    reader = SessionConsumer(slots=1)
    reader.fixture.hosted.host("a")
    reader.now_ms = 10 * MIN_FETCH_SESSION_EVICTION_MS
    first = reader.answer(request(wanted={"a": (0,)})).session_id
    reader.now_ms += idle_ms
    second = reader.answer(request(wanted={"a": (0,)})).session_id
    assert (second != 0) == evicted
    assert len(reader.sessions) == 1
    assert isinstance(reader.ask(request(second or first, 1)), fetch.FetchResponse) is False


@pytest.mark.parametrize(
    ("replica", "state", "follows"), [(-1, -1, False), (0, -1, True), (-1, 0, True), (7, -1, True), (-1, 7, True)]
)
def test_replica_id_in_either_field_makes_request_a_follower_fetch(
    reader: SessionConsumer, replica: int, state: int, *, follows: bool
) -> None:
    body = request(wanted={"a": (0,)})
    body.replica_id, body.replica_state.replica_id = replica, state
    assert reader.ask(body, 15).is_follower is follows


def by_broker(request: fetch.FetchRequest) -> fetch.FetchRequest:
    request.replica_state.replica_id = 2
    return request


def test_follower_session_evicts_consumer_and_is_not_evicted_by_one() -> None:
    reader = SessionConsumer(slots=1)
    reading = reader.answer(request(wanted={"a": (0,)})).session_id
    following = reader.answer(by_broker(request(wanted={"a": (0,)})), 15).session_id
    assert following != 0
    assert reader.ask(request(reading, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert reader.answer(by_broker(request(wanted={"b": (0,)})), 15).session_id == 0, "one as good as itself"
    assert reader.answer(request(wanted={"a": (0,)})).session_id == 0
    reader.now_ms += MIN_FETCH_SESSION_EVICTION_MS
    assert reader.answer(request(wanted={"a": (0,)})).session_id != 0, "but one that is gone"


def test_follower_session_has_no_partition_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 2)
    reader = SessionConsumer()
    many = {"a": tuple(range(4))}
    assert isinstance(reader.ask(request(wanted=many), 15), fetch_session_cache._LargeFetchContext)
    session = reader.answer(by_broker(request(wanted=many)), 15).session_id
    assert session != 0
    assert len(reader.ask(by_broker(request(session, 1, {"b": (0, 1)})), 15).requested_partitions()) == 6
    monkeypatch.setattr(fetch_session_cache, "MAX_CACHED_FETCH_PARTITIONS", 3)
    assert reader.answer(request(wanted={"a": (0, 1)})).session_id != 0, "and takes no reader's room"


def test_session_creation_yields_every_64_partitions_and_topics(reader: SessionConsumer) -> None:
    assert yields(reader, request(wanted={"a": tuple(range(62))})) == 0
    assert yields(reader, request(wanted={"a": tuple(range(63))})) == 1 + 0
    assert yields(reader, request(wanted={"a": tuple(range(64))})) == 1 + 1
    assert yields(reader, request(wanted={"a": tuple(range(640))})) == 10 + 10, "and as often where its state is made"
    assert yields(reader, request(wanted={f"t{n}": (0,) for n in range(63)})) == 0 + 1 + 0
    assert yields(reader, request(wanted={f"t{n}": (0,) for n in range(640)})) == 10 + 20 + 10


@pytest.mark.parametrize(("count", "expected"), [(62, 0), (63, 1 + 0), (64, 1 + 1), (127, 2 + 1), (640, 10 + 10)])
def test_session_update_yields_every_64_named_partitions(reader: SessionConsumer, count: int, expected: int) -> None:
    session = reader.answer(request(wanted={"a": (0,)})).session_id
    assert yields(reader, request(session, 1, {"b": tuple(range(count))})) == expected


@pytest.mark.parametrize(("count", "expected"), [(63, 0), (64, 1), (127, 1), (128, 2), (640, 10)])
def test_session_update_yields_every_64_forgotten_partitions_and_topics(
    reader: SessionConsumer, count: int, expected: int
) -> None:
    session = reader.answer(request(wanted={"a": (0,)})).session_id
    assert yields(reader, request(session, 1, forgotten={"b": tuple(range(count))})) == expected
    assert yields(reader, request(session, 2, forgotten={f"t{n}": (0,) for n in range(count)})) == expected


@pytest.mark.parametrize(("count", "expected"), [(63, 0), (64, 1), (127, 1), (640, 10)])
def test_response_that_opens_a_session_yields_every_64_partitions(
    reader: SessionConsumer, count: int, expected: int
) -> None:
    for epoch, jobs in ((0, 2), (-1, 1)):
        context = reader.ask(request(0, epoch, {"a": tuple(range(count))}))
        rows = [(want, fetch.PartitionData(want.partition, records=b"")) for want in context.requested_partitions()]
        assert sum(1 for _ in context.build_response(rows)) == jobs * expected, "the session's state, and the topics"
