"""Follower of very many partitions: small requests that add up to a session with all of them."""

from __future__ import annotations

from ottla.broker.replication.fetcher.fetch_state import PartitionKey
from ottla.broker.replication.fetcher.tests.test_fetch_state import (
    TOPIC,
    A,
    B,
    answer,
    following,
    forgotten,
    requested,
    row,
    session,
)
from ottla.wire.errors import ErrorCode

MANY = [(TOPIC, n) for n in range(2003)]


def test_many_new_partitions_are_named_in_several_requests_without_wait() -> None:
    machine = following(*MANY)
    named: list[PartitionKey] = []
    for number, waits in enumerate((0, 0, 500)):
        request = machine.build_fetch(0)
        assert request is not None
        assert (request.session_epoch, request.max_wait_ms) == (number, waits)
        assert len(requested(request)) <= 1000
        named += requested(request)
        rows = [(key, row(key[1])) for key in named] if number == 0 else []
        machine.process_response(answer(*rows, session=9), 0)
    assert named == MANY


def test_changed_and_forgotten_partitions_precede_many_new_ones() -> None:
    machine = following(A, B)
    machine.process_response(answer((A, row()), (B, row(1)), session=9), 0)
    machine.build_fetch(0)
    machine.process_response(answer((A, row()), (B, row(1)), session=9), 0)
    for key in MANY[2:]:
        machine.add_partition(key, 5, 100, 4, 10)
    machine.update_log_state(A, 101, 4, 10)
    request = machine.build_fetch(0)
    assert A in requested(request)
    assert len(requested(request)) == 1001
    assert forgotten(request) == [B], "it is being worked on"


def test_leader_without_sessions_gets_many_partitions_at_once() -> None:
    machine = following(*MANY)
    first = requested(machine.build_fetch(0))
    machine.process_response(answer(*[(key, row(key[1], ErrorCode.UNKNOWN_LEADER_EPOCH)) for key in first]), 0)
    request = machine.build_fetch(10_000)
    assert requested(request) == MANY
    assert request is not None
    assert (session(request), request.max_wait_ms) == ((0, 0), 500)
