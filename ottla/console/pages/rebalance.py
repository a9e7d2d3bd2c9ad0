"""Page of a plan that balances replicas and leaders over the brokers, and its execution after a confirmation.

The plan is that of ``ottla cluster rebalance``. Its file has the format of ``kafka-reassign-partitions.sh``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from ottla.broker.network.http.http_messages import HttpResponse
from ottla.console.page import Change, InvalidInput, PageRequest, View, check, confirm_and_execute, split_entries
from ottla.console.paging import PAGE_ROWS, paginate
from ottla.console.rendering import format_count
from ottla.controller.partitions.reassignment_plan import (
    BrokerLoads,
    PlannedPartition,
    PlannedReassignment,
    count_partitions,
    rebalance,
)
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages import alter_partition_reassignments, list_partition_reassignments

TIMEOUT_MS = 30_000
JSON_TYPE = "application/json"
_IDS = "[0-9]{1,10}(?:,[0-9]{1,10}){0,99}"
_MOVE = re.compile(rf"([a-zA-Z0-9._-]{{1,249}}):([0-9]{{1,10}})=((?:{_IDS})?)>({_IDS})", re.ASCII)
_MAX_INT32 = 2**31 - 1
_PARTITIONS_PER_YIELD = 200
Assignment = Mapping[PlannedPartition, Sequence[int]]
"""Replicas of partitions, the preferred leader first."""


class Move(NamedTuple):
    """Planned move of a partition: replicas before and after."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def text(self) -> str:
        """Text of the move in a form, such as ``orders:0=1,2>2,3``."""
        before, after = (",".join(map(str, replicas)) for replicas in (self.before, self.after))
        return f"{self.topic}:{self.partition}={before}>{after}"

    @property
    def is_copied(self) -> bool:
        """True if a broker gets a copy; False if only the preferred leader changes."""
        return not set(self.after) <= set(self.before)


class BrokerShare(NamedTuple):
    """Replicas and preferred leads of a broker, now and with the plan."""

    broker: int
    replicas_before: int
    replicas_after: int
    leads_before: int
    leads_after: int


class RebalancePlan(NamedTuple):
    """Moves that balance the brokers, and the brokers' shares."""

    moves: list[Move]
    shares: list[BrokerShare]


def plan_rebalance(racks: Mapping[int, str | None], partitions: Assignment) -> Job[RebalancePlan]:
    """Return the plan that balances the replicas of ``partitions`` over the brokers in ``racks``, as a job.

    ``racks``: rack of each broker by its id; None if it has none.
    """
    planned: list[PlannedReassignment] = yield from rebalance(racks, partitions)
    target = {**partitions, **{each.partition: each.replicas for each in planned}}
    before = yield from count_partitions(BrokerLoads(racks), partitions.items())
    after = yield from count_partitions(BrokerLoads(racks), target.items())
    shares = [
        BrokerShare(
            broker,
            before.replicas[broker],
            after.replicas[broker],
            before.preferred_leads[broker],
            after.preferred_leads[broker],
        )
        for broker in sorted(racks)
    ]
    moves = [Move(*each.partition, tuple(partitions[each.partition]), each.replicas) for each in planned]
    return RebalancePlan(moves, shares)


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


def _read_partitions(topics: Sequence[object], moving: set[PlannedPartition]) -> Job[dict[PlannedPartition, list[int]]]:
    out: dict[PlannedPartition, list[int]] = {}
    for topic in topics:
        name = topic.name or ""  # type: ignore[attr-defined]
        for row in topic.partitions:  # type: ignore[attr-defined]
            if (name, row.partition_index) not in moving:
                out[name, row.partition_index] = list(row.replica_nodes)
        yield None
    return out


async def _fetch_plan(
    page: PageRequest,
) -> tuple[RebalancePlan, list[list_partition_reassignments.OngoingTopicReassignment]]:
    """Return the plan for the topics that the session may describe, and the reassignments in progress.

    Partitions that move already are not planned.

    Raises:
        ProtocolError: the session may not describe the cluster.
    """
    metadata = await page.client.metadata(None)
    ongoing = await page.client.call(list_partition_reassignments.ListPartitionReassignmentsRequest(TIMEOUT_MS, None))
    check(ongoing.error_code, ongoing.error_message, "reassignments")
    moving = {(topic.name, row.partition_index) for topic in ongoing.topics for row in topic.partitions}
    env, racks = page.node.local.env, {broker.node_id: broker.rack for broker in metadata.brokers}
    partitions = await run_in_background(env, _read_partitions(metadata.topics, moving))
    return await run_in_background(env, plan_rebalance(racks, partitions)), ongoing.topics


async def get_rebalance(page: PageRequest) -> View:
    """Return the page of the plan: shares of the brokers, planned moves, and moves in progress.

    Raises:
        ProtocolError: the session may not describe the cluster.
    """
    plan, ongoing = await _fetch_plan(page)
    shown, paging = paginate(page, plan.moves)
    moving = [
        {
            "topic": topic.name,
            "partition": row.partition_index,
            "adding": row.adding_replicas,
            "removing": row.removing_replicas,
        }
        for topic in ongoing
        for row in topic.partitions
    ]
    values = {
        "title": "Rebalance plan",
        "moves": shown,
        "text": "\n".join(move.text for move in shown),
        "copied": sum(move.is_copied for move in plan.moves),
        "paging": paging,
        "shares": plan.shares,
        "moving": moving[:PAGE_ROWS],
        "moving_count": len(moving),
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


def parse_moves(text: str) -> list[Move]:
    """Return the moves of a form, one in each line.

    Raises:
        InvalidInput: a line is malformed, or there is none, or there are too many.
    """
    out = []
    for line in split_entries(text, PAGE_ROWS, "moves"):
        found = _MOVE.fullmatch(line)
        if found is None:
            raise InvalidInput(f"moves: TOPIC:PARTITION=FROM>TO expected: {line[:100]}")
        before, after = (tuple(int(x) for x in ids.split(",") if x) for ids in found.group(3, 4))
        move = Move(found[1], int(found[2]), before, after)
        if max(move.partition, *before, *after) > _MAX_INT32:
            raise InvalidInput(f"moves: a number above {_MAX_INT32}: {line[:100]}")
        out.append(move)
    if not out:
        raise InvalidInput("moves: a value is missing")
    return out


async def _check_unchanged(page: PageRequest, moves: Sequence[Move]) -> None:
    """Check that each partition still has the replicas of the plan, in any order.

    Raises:
        InvalidInput: one has other replicas, or does not exist.
    """
    metadata = await page.client.metadata(sorted({move.topic for move in moves}))
    present = {
        (topic.name, row.partition_index): row.replica_nodes for topic in metadata.topics for row in topic.partitions
    }
    for move in moves:
        if sorted(present.get((move.topic, move.partition), ())) != sorted(move.before):
            raise InvalidInput(f"{move.topic}-{move.partition} has other replicas now: open the plan again.")


async def apply_rebalance(page: PageRequest) -> View:
    """Begin the reassignments of the form, if it is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: the form is malformed, or the plan is out of date. ProtocolError: a reassignment was refused;
            others may have begun.
    """
    moves = parse_moves(page.text("moves"))
    await _check_unchanged(page, moves)

    async def execute() -> str:
        topics: dict[str, alter_partition_reassignments.ReassignableTopic] = {}
        for move in moves:
            row = alter_partition_reassignments.ReassignablePartition(move.partition, list(move.after))
            topics.setdefault(
                move.topic, alter_partition_reassignments.ReassignableTopic(move.topic)
            ).partitions.append(row)
        request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            TIMEOUT_MS, topics=list(topics.values())
        )
        response = await page.client.call(request)
        check(response.error_code, response.error_message, "reassignments")
        for topic in response.responses:
            for result in topic.partitions:
                check(result.error_code, result.error_message, f"{topic.name}-{result.partition_index}")
        return (
            f"The reassignment of {format_count(len(moves))} partitions has begun. Elect preferred leaders when no "
            "move is in progress."
        )

    lines = [
        f"{move.topic}-{move.partition}: brokers {', '.join(map(str, move.before))} become "
        f"{', '.join(map(str, move.after))}."
        for move in moves
    ]
    lines.append(
        "Brokers copy the partitions that they get, which takes disk space and network. An old replica is removed when "
        "the new ones are in sync; no record is lost."
    )
    change = Change("Move partitions", lines, "Move the partitions", execute, "/cluster/rebalance")
    return await confirm_and_execute(page, change)
