"""Plan of a balanced assignment: moves, shares of the brokers, file for Kafka's tool, and moves of a form."""

from __future__ import annotations

import json

import pytest

from ottla.console.page import InvalidInput
from ottla.console.pages.reassignments import Move, parse_moves
from ottla.console.pages.rebalance import encode_assignment, plan_rebalance
from ottla.jobs.job import run_to_end

RACKS = {1: None, 2: None, 3: None}


def test_plan_evens_replicas_and_preferred_leads() -> None:
    before = {("t", number): (1, 2) for number in range(6)}
    plan = run_to_end(plan_rebalance(RACKS, before))
    assert [(x.broker, x.replicas_before, x.leads_before) for x in plan.shares] == [(1, 6, 6), (2, 6, 0), (3, 0, 0)]
    assert [(x.broker, x.replicas_after, x.leads_after) for x in plan.shares] == [(1, 4, 2), (2, 4, 2), (3, 4, 2)]
    after = {**before, **{(move.topic, move.partition): move.after for move in plan.moves}}
    assert all(len(set(replicas)) == 2 for replicas in after.values())
    assert [move.before for move in plan.moves] == [(1, 2)] * len(plan.moves)
    assert any(move.is_copied for move in plan.moves)


def test_balanced_cluster_has_no_moves() -> None:
    plan = run_to_end(plan_rebalance(RACKS, {("t", n): (n % 3 + 1, (n + 1) % 3 + 1) for n in range(6)}))
    assert plan.moves == []


def test_move_of_the_leader_alone_is_no_copy() -> None:
    assert not Move("t", 0, (1, 2), (2, 1)).is_copied
    assert Move("t", 0, (1, 2), (2, 3)).is_copied


def test_file_has_the_format_of_kafka_reassign_partitions() -> None:
    (raw,) = run_to_end(encode_assignment([(("orders", 0), (1, 2)), (("orders", 1), (3,))]))
    assert json.loads(raw) == {
        "version": 1,
        "partitions": [
            {"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]},
            {"topic": "orders", "partition": 1, "replicas": [3], "log_dirs": ["any"]},
        ],
    }


def test_parse_moves_returns_the_moves_of_the_form() -> None:
    most = 2**31 - 1
    moves = [Move("a.b-c_d", 3, (1, 2), (2, 3)), Move("t", 0, (), (1,)), Move("t", most, (most, 1), (1, most))]
    assert parse_moves("\r\n".join(move.text for move in moves)) == moves


@pytest.mark.parametrize(
    "text",
    [
        "",
        "t:0",
        "t:0=1>,",
        "t:0=1>2,,3",
        "t:0=1>2,",
        "t:0=,>2",
        "t:0=1>2147483648",
        "t:2147483648=1>2",
        "t:0=1>",
        "t:x=1>2",
        "t:0=1>-2",
        "t/../x:0=1>2",
        "t:0=1>2 ",
        "t:0=1>²",
        "\n".join(["t:0=1>2"] * 101),
    ],
)
def test_parse_moves_rejects_a_malformed_form(text: str) -> None:
    with pytest.raises(InvalidInput, match="moves"):
        parse_moves(text)
