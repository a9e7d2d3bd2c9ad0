"""Selection of the replica for a consumer (R-340). Source: ``RackAwareReplicaSelector.java`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.fetch.fetch_params import RACK_AWARE_SELECTOR
from ottla.broker.handlers.fetch.tests.test_fetch import request, rows_of, send
from ottla.broker.handlers.fetch.tests.test_follower_fetch import by
from ottla.broker.replication.partition_state import CommittedIsr, FollowerReplica, LeaderState
from ottla.broker.replication.rack_aware_selector import select_replica
from ottla.broker.tests.handler_fixture import HandlerFixture
from ottla.log.tests.log_fixtures import make_batch

NOW = 1000
RACKS = {1: "a", 2: "b", 3: "b", 4: "c", 5: None}


def leading(isr: tuple[int, ...], **followers: tuple[int, int, int]) -> LeaderState:
    """Return a leader state with followers by (end, log start, caught up)."""
    known = {
        int(name[1:]): FollowerReplica(end, start, caught_up) for name, (end, start, caught_up) in followers.items()
    }
    return LeaderState(1, 3, 0, CommittedIsr(isr), 0, known)


SAME = {"b2": (10, 0, 900), "b3": (10, 0, 900)}


@pytest.mark.behaviour("R-340", "P-38")
@pytest.mark.parametrize(
    ("rack", "isr", "followers", "sent_to"),
    [
        pytest.param("", (1, 2, 3), SAME, -1, id="the reader has no rack"),
        pytest.param("a", (1, 2, 3), SAME, -1, id="the leader's rack"),
        pytest.param("z", (1, 2, 3), SAME, -1, id="nobody is there"),
        pytest.param("b", (1, 2, 3), SAME, 3, id="of equal ones the highest id"),
        pytest.param("b", (1, 2), SAME, 2, id="only members of the ISR"),
        pytest.param("b", (1,), SAME, -1, id="nobody of the ISR is there"),
        pytest.param("b", (1, 2, 3), {"b2": (11, 0, 1), "b3": (10, 0, 999)}, 2, id="who is furthest"),
        pytest.param("b", (1, 2, 3), {"b2": (10, 0, 901), "b3": (10, 0, 900)}, 2, id="then who lags least"),
        pytest.param("b", (1, 2, 3), {"b2": (4, 0, 900), "b3": (-1, -1, 900)}, -1, id="nobody has the offset yet"),
        pytest.param("b", (1, 2, 3), {"b2": (5, 0, 900), "b3": (9, 6, 900)}, 2, id="or has it no more"),
        pytest.param("c", (1, 4), {"b4": (5, 5, 900)}, 4, id="exactly"),
    ],
)
def test_select_replica_by_rack_isr_and_offsets(
    rack: str, isr: tuple[int, ...], followers: dict[str, tuple[int, int, int]], sent_to: int
) -> None:
    assert select_replica(leading(isr, **followers), RACKS, rack, 5, NOW) == sent_to


@pytest.mark.behaviour("P-38")
@pytest.mark.parametrize(
    ("selector", "version", "rack", "sent_to"),
    [
        (RACK_AWARE_SELECTOR, 11, "b", 2),
        (RACK_AWARE_SELECTOR, 10, "b", -1),
        ("", 11, "b", -1),
        (RACK_AWARE_SELECTOR, 11, "a", -1),
    ],
)
def test_fetch_from_other_rack_returns_preferred_replica_without_records(
    selector: str, version: int, rack: str, sent_to: int
) -> None:
    fixture = HandlerFixture(**({"replica_selector_class": selector} if selector else {}))
    fixture.services.metadata.endpoints = lambda dialled, fenced=False: [(1, "h", 1, "a"), (2, "h", 2, "b")]
    replica: Any = fixture.hosted.host("t", isr=(1, 2), replicas=(1, 2))
    replica.append(make_batch(10), NOW)
    send(fixture, by(2, 3))
    body = request(("t", 0, 0), wait=5000)
    body.rack_id = rack
    answer, took = send(fixture, body, version)
    (row,) = rows_of(answer)
    assert (row.preferred_read_replica, len(row.records) == 0, took) == (sent_to, sent_to == 2, 0)
    assert row.high_watermark == 3
