"""Limits of fetch sessions: partitions of one and of all, requests too large for a session, and who owns one."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.config.limits import MIN_FETCH_SESSION_EVICTION_MS
from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.fetch_sessions.tests.test_fetch_session_cache import (
    SessionConsumer,
    by_broker,
    consumer_of_two_topics,
    request,
    shown,
)
from ottla.broker.tests.run_steps import run_steps
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import fetch


@pytest.fixture
def reader() -> SessionConsumer:
    return consumer_of_two_topics()


def set_limits(monkeypatch: pytest.MonkeyPatch, session: int, all_sessions: int) -> None:
    monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", session)
    monkeypatch.setattr(fetch_session_cache, "MAX_CACHED_FETCH_PARTITIONS", all_sessions)


def test_session_that_grows_above_its_limit_is_closed(reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, 3, 100)
    session = reader.answer(request(wanted={"a": (0, 1)})).session_id
    assert reader.answer(request(session, 1, {"a": (2,)})).session_id == session
    assert reader.ask(request(session, 2, {"b": (0,)})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(reader.sessions) == 0


def test_session_that_grows_above_the_limit_of_all_is_closed(
    reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, 100, 5)
    first, second = (reader.answer(request(wanted={"a": (0, 1)})).session_id for _ in range(2))
    assert reader.answer(request(first, 1, {"a": (2,)})).session_id == first
    assert reader.ask(request(second, 1, {"b": (0,)})).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert [session.id for session in reader.sessions] == [first]


def test_session_that_does_not_grow_is_not_closed_by_limits(
    reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = reader.answer(request(wanted={"a": (0, 1)})).session_id
    set_limits(monkeypatch, 1, 1)
    assert reader.answer(request(session, 1, {"a": (0,)})).session_id == session


def test_follower_session_without_authorization_has_the_limit_of_a_consumer(
    reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, 3, 100)
    session = reader.answer(by_broker(request(wanted={"a": (0, 1)})), 15).session_id
    monkeypatch.setattr(fetch_session_cache, "_may_follow", lambda context: False)
    assert reader.answer(by_broker(request(session, 1, {"a": (2,)})), 15).session_id == session
    refused = reader.ask(by_broker(request(session, 2, {"b": (0,)})), 15)
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_new_session_above_the_limit_of_all_evicts_only_an_idle_one(
    reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, 100, 4)
    first, second = (reader.answer(request(wanted={"a": (0, 1)})).session_id for _ in range(2))
    assert 0 not in (first, second)
    assert reader.answer(request(wanted={"a": (0,)})).session_id == 0
    reader.now_ms = MIN_FETCH_SESSION_EVICTION_MS
    reader.answer(request(second, 1))
    third = reader.answer(request(wanted={"a": (0, 1)})).session_id
    assert [session.id for session in reader.sessions] == [second, third]


def test_follower_session_in_use_is_not_evicted_by_another_follower() -> None:
    reader = SessionConsumer(slots=1)
    reader.now_ms = 10 * MIN_FETCH_SESSION_EVICTION_MS
    session = reader.answer(by_broker(request(wanted={"a": (0,)})), 15).session_id
    reader.now_ms += MIN_FETCH_SESSION_EVICTION_MS - 1
    assert reader.answer(by_broker(request(wanted={"a": (0,)})), 15).session_id == 0
    assert [each.id for each in reader.sessions] == [session]


@pytest.mark.parametrize("replica", [-1, 0, 1])
def test_session_of_a_replica_id_is_owned_by_that_follower(reader: SessionConsumer, replica: int) -> None:
    follows = replica >= 0

    def sent(*args: Any) -> Any:
        body = request(*args)
        body.replica_state.replica_id = replica
        return reader.ask(body, 15)

    context = sent(0, 0, {"a": (0,)})
    assert (context.is_follower, context.is_session_owner) == (follows, False)
    run_steps(
        context.build_response([(w, fetch.PartitionData(0, records=b"")) for w in context.requested_partitions()])
    )
    (session,) = reader.sessions
    assert (session.is_privileged, session.follower_id, session.client_id) == (follows, replica, "client")
    assert (context.is_session_owner, context.session) == (follows, session)
    context = sent(session.id, 1)
    assert (context.is_follower, context.is_session_owner) == (follows, follows)


class LargeFetch:
    """Fetch with more partitions than a session may have."""

    def __init__(self, reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fetch_session_cache, "MAX_FETCH_SESSION_PARTITIONS", 3)
        self.reader = reader

    def ask(self, body: fetch.FetchRequest, version: int) -> Any:
        context = self.reader.ask(body, version)
        assert isinstance(context, fetch_session_cache._LargeFetchContext)
        return context


@pytest.fixture
def large(reader: SessionConsumer, monkeypatch: pytest.MonkeyPatch) -> LargeFetch:
    return LargeFetch(reader, monkeypatch)


@pytest.mark.parametrize("version", [12, 13, 14])
def test_large_fetch_returns_its_partitions_by_topic(large: LargeFetch, version: int) -> None:
    body = request(wanted={"a": (0, 1), "b": (0, 1), "late": (0,)}, ids=version >= 13)
    context = large.ask(body, version)
    assert len(context.requested_partitions()) == 5
    rows = context.create_row_buffer()
    for want in context.requested_partitions():
        if want is not None:
            rows.append((want, fetch.PartitionData(want.partition, records=b"")))
    answer = run_steps(context.build_response(rows))
    late = "" if version >= 13 else "late"  # the topic id is not known
    assert shown(answer) == [("a", 0), ("a", 1), ("b", 0), ("b", 1), (late, 0)]
    assert len(answer.responses) == 3
    assert (answer.session_id, context.session, context.is_session_owner) == (0, None, False)


@pytest.mark.parametrize("version", [12, 13])
def test_large_fetch_reads_a_repeated_partition_first_with_its_last_offset(large: LargeFetch, version: int) -> None:
    body = request(wanted={"a": (0, 1), "b": (0,)}, ids=version >= 13, offset=5)
    body.topics += request(wanted={"a": (0,)}, ids=version >= 13, offset=7).topics
    read = [want for want in large.ask(body, version).requested_partitions() if want is not None]
    assert [(want.topic, want.partition, want.fetch_offset) for want in read] == [("a", 0, 7), ("a", 1, 5), ("b", 0, 5)]


def test_large_fetch_closes_the_session_that_it_names(large: LargeFetch) -> None:
    session = large.reader.answer(request(wanted={"a": (0,)})).session_id
    large.ask(request(session, 0, {"a": (0, 1, 2, 3)}), 13)
    assert len(large.reader.sessions) == 0


def test_full_fetch_at_the_limit_of_a_session_opens_one(large: LargeFetch) -> None:
    assert large.reader.answer(request(wanted={"a": (0, 1, 2)})).session_id != 0
