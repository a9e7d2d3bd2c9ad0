"""Prepared Fetch: sessions that it must leave to the handler, and preparations without use."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from ottla.broker.handlers.fetch.tests.fetch_comparison import FetchComparison, open_session, request
from ottla.broker.handlers.prepared_request import REPETITIONS, REPETITIONS_UNTIL_RETRY


def test_full_fetch_opens_session_when_a_slot_is_free() -> None:
    nodes = FetchComparison()

    def allow(slots: int) -> None:
        for node in nodes.nodes:
            node.fixture.services.fetch_sessions._slots = slots

    allow(0)
    for _ in range(REPETITIONS + 1):
        assert nodes.fetch(request(("t", 0, 0), epoch=0)).session_id == 0
    allow(1)
    assert nodes.fetch(request(("t", 0, 3), epoch=0)).session_id != 0
    assert nodes.prepared == 0


def test_consumer_in_follower_session_is_left_to_the_handler() -> None:
    nodes = FetchComparison()
    session = nodes.fetch(request(("t", 0, 0), epoch=0, follower=1)).session_id
    for epoch in range(1, REPETITIONS + 3):
        nodes.fetch(request(("t", 0, 0), session=session, epoch=epoch))
    assert nodes.prepared == 0


def test_closed_session_is_not_kept_by_prepared_fetch() -> None:
    nodes = FetchComparison()
    session = open_session(nodes, ("t", 0, 0))
    nodes.repeat(request(("t", 0, 0), session=session, epoch=1))
    known = weakref.ref(nodes.nodes[0].fixture.services.fetch_sessions.get(session))
    nodes.change(lambda fixture: fixture.services.fetch_sessions._sessions.clear())
    gc.collect()
    assert known() is None
    assert nodes.fetch(request(("t", 0, 3), session=session, epoch=2 + REPETITIONS)).error_code != 0


def test_preparation_without_use_is_repeated_rarely() -> None:
    nodes = FetchComparison()
    always_handled = nodes.nodes[1]
    seen = []
    for _ in range(2 * REPETITIONS_UNTIL_RETRY):
        nodes.fetch(request(("t", 0, 0)))
        if always_handled.peer.prepared_request not in seen:
            seen.append(always_handled.peer.prepared_request)
    assert len(seen) == 1 + 2  # None at first


@pytest.mark.parametrize("reason", ["requests are counted", "quotas"])
def test_prepared_fetch_is_not_built_when_requests_are_counted(reason: str) -> None:
    nodes = FetchComparison()
    quotas = SimpleNamespace(max_fetch_bytes=lambda *values: values[-1], fetch_throttle_ms=lambda *values: 0)
    for node in nodes.nodes:
        if reason == "quotas":
            node.fixture.services.quota_holder.quotas = quotas
        else:
            node.peer.prepares_requests = False
    for _ in range(REPETITIONS + 1):
        nodes.fetch(request(("t", 0, 0)))
    assert nodes.nodes[0].peer.prepared_request is None
