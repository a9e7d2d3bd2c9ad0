"""Page of a plan that balances replicas and leaders over the brokers, and its execution after a confirmation.

The plan is that of ``ottla cluster rebalance``. Its file has the format of ``kafka-reassign-partitions.sh``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from ottla.broker.network.http.http_messages import HttpResponse
from ottla.console.page import PageRequest, View
from ottla.console.pages.reassignments import (
    Assignment,
    BrokerShare,
    Move,
    confirm_and_move,
    count_shares,
    describe_ongoing,
    fetch_replicas,
    list_moves,
    parse_moves,
)
from ottla.console.paging import paginate
from ottla.controller.partitions.reassignment_plan import PlannedPartition, rebalance
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages import list_partition_reassignments

JSON_TYPE = "application/json"
_PARTITIONS_PER_YIELD = 200


class RebalancePlan(NamedTuple):
    """Moves that balance the brokers, and the brokers' shares."""

    moves: list[Move]
    shares: list[BrokerShare]
    copied: int
    """Number of moves that copy a replica to another broker."""


def plan_rebalance(racks: Mapping[int, str | None], partitions: Assignment) -> Job[RebalancePlan]:
    """Return the plan that balances the replicas of ``partitions`` over the brokers in ``racks``, as a job.

    ``racks``: rack of each broker by its id; None if it has none.
    """
    planned = yield from rebalance(racks, partitions)
    shares = yield from count_shares(racks, partitions, planned)
    moves = yield from list_moves(partitions, planned)
    copied = 0
    for move in moves:
        copied += move.is_copied
        yield None
    return RebalancePlan(moves, shares, copied)


def encode_assignment(rows: Iterable[tuple[PlannedPartition, Sequence[int]]]) -> Job[list[bytes]]:
    """Return the content of a JSON file for ``kafka-reassign-partitions.sh``, as a job; the list has one item."""
    out, separator = [b'{"version": 1, "partitions": ['], "\n"
    for number, ((topic, partition), replicas) in enumerate(rows):
        row = {"topic": topic, "partition": partition, "replicas": list(replicas)}
        row["log_dirs"] = ["any"] * len(replicas)
        out.append(f"{separator}{json.dumps(row)}".encode())
        separator = ",\n"
        if number % _PARTITIONS_PER_YIELD == 0:
            yield None
    return [b"".join([*out, b"\n]}\n"])]


async def _fetch_plan(
    page: PageRequest,
) -> tuple[RebalancePlan, list[list_partition_reassignments.OngoingTopicReassignment]]:
    """Return the plan for the topics that the session may describe, and the reassignments in progress.

    Partitions that move already are not planned.

    Raises:
        ProtocolError: the session may not describe the cluster.
    """
    state = await fetch_replicas(page)
    plan = await run_in_background(page.node.local.env, plan_rebalance(state.racks, state.partitions))
    return plan, state.ongoing


async def get_rebalance(page: PageRequest) -> View:
    """Return the page of the plan: shares of the brokers, planned moves, and moves in progress.

    Raises:
        ProtocolError: the session may not describe the cluster.
    """
    plan, ongoing = await _fetch_plan(page)
    shown, paging = paginate(page, plan.moves)
    values = {
        "title": "Rebalance plan",
        "moves": shown,
        "text": "\n".join(move.text for move in shown),
        "copied": plan.copied,
        "paging": paging,
        "shares": plan.shares,
        **describe_ongoing(ongoing),
    }
    return View("rebalance.html", values)


async def get_rebalance_file(page: PageRequest) -> HttpResponse:
    """Return the plan, or with ``state=current`` the present replicas of its partitions, as a file of Kafka's tool.

    Raises:
        ProtocolError: the session may not describe the cluster.
    """
    plan, _ = await _fetch_plan(page)
    is_current = page.fields.get("state") == "current"
    rows = (((m.topic, m.partition), m.before if is_current else m.after) for m in plan.moves)
    parts = await run_in_background(page.node.local.env, encode_assignment(rows))
    name = "current-assignment.json" if is_current else "reassignment.json"
    headers = (("Content-Disposition", f'attachment; filename="{name}"'),)
    return HttpResponse(HTTPStatus.OK, parts, JSON_TYPE, headers)


async def apply_rebalance(page: PageRequest) -> View:
    """Begin the reassignments of the form, if it is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: the form is malformed, or the plan is out of date. ProtocolError: a reassignment was refused;
            others may have begun.
    """
    return await confirm_and_move(page, parse_moves(page.text("moves")), "Move partitions", "/cluster/rebalance")
