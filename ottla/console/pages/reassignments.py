"""Reassignments that the console plans and requests: present replicas, moves of a form, shares of the brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from ottla.console.page import Change, InvalidInput, PageRequest, View, check, confirm_and_execute, split_entries
from ottla.console.paging import PAGE_ROWS
from ottla.console.rendering import format_count
from ottla.controller.partitions.reassignment_plan import (
    BrokerLoads,
    PlannedPartition,
    PlannedReassignment,
    count_partitions,
)
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.messages import alter_partition_reassignments, list_partition_reassignments
from ottla.wire.messages.metadata import MetadataResponseTopic

TIMEOUT_MS = 30_000
_IDS = "[0-9]{1,10}(?:,[0-9]{1,10}){0,99}"
_MOVE = re.compile(rf"([a-zA-Z0-9._-]{{1,249}}):([0-9]{{1,10}})=((?:{_IDS})?)>({_IDS})", re.ASCII)
MAX_INT32 = 2**31 - 1
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


class ReplicaState(NamedTuple):
    """Live brokers, and the replicas of the partitions that the session may describe and that do not move."""

    racks: dict[int, str | None]
    """Rack of each live broker by its id; None if it has none."""
    partitions: dict[PlannedPartition, list[int]]
    """Replicas of each partition, the preferred leader first."""
    leaders: dict[PlannedPartition, int]
    """Leader of each of ``partitions``, -1 for none."""
    ongoing: list[list_partition_reassignments.OngoingTopicReassignment]
    """Reassignments in progress, by topic."""


def _read_partitions(
    topics: Sequence[MetadataResponseTopic], moving: set[PlannedPartition]
) -> Job[tuple[dict[PlannedPartition, list[int]], dict[PlannedPartition, int]]]:
    replicas: dict[PlannedPartition, list[int]] = {}
    leaders: dict[PlannedPartition, int] = {}
    for topic in topics:
        for row in topic.partitions:
            at = (topic.name or "", row.partition_index)
            if at not in moving:
                replicas[at], leaders[at] = list(row.replica_nodes), row.leader_id
        yield None
    return replicas, leaders


async def fetch_replicas(page: PageRequest) -> ReplicaState:
    """Return the present replicas; partitions that move already are left out.

    Raises:
        ProtocolError: the session may not describe the cluster.
    """
    metadata = await page.client.metadata(None)
    ongoing = await page.client.call(list_partition_reassignments.ListPartitionReassignmentsRequest(TIMEOUT_MS, None))
    check(ongoing.error_code, ongoing.error_message, "reassignments")
    moving = {(topic.name, row.partition_index) for topic in ongoing.topics for row in topic.partitions}
    replicas, leaders = await run_in_background(page.node.local.env, _read_partitions(metadata.topics, moving))
    racks = {broker.node_id: broker.rack for broker in metadata.brokers}
    return ReplicaState(racks, replicas, leaders, ongoing.topics)


def list_moves(partitions: Assignment, planned: Sequence[PlannedReassignment]) -> Job[list[Move]]:
    """Return the moves from the present replicas in ``partitions`` to the planned ones, as a job."""
    out = []
    for each in planned:
        out.append(Move(*each.partition, tuple(partitions[each.partition]), each.replicas))
        yield None
    return out


def count_shares(
    racks: Mapping[int, str | None], partitions: Assignment, planned: Sequence[PlannedReassignment]
) -> Job[list[BrokerShare]]:
    """Return the share of each broker in ``racks``, sorted by id, now and after the planned reassignments, as a job."""
    target = {**partitions, **{each.partition: each.replicas for each in planned}}
    before = yield from count_partitions(BrokerLoads(racks), partitions.items())
    after = yield from count_partitions(BrokerLoads(racks), target.items())
    return [
        BrokerShare(
            broker,
            before.replicas[broker],
            after.replicas[broker],
            before.preferred_leads[broker],
            after.preferred_leads[broker],
        )
        for broker in sorted(racks)
    ]


def describe_ongoing(topics: Sequence[list_partition_reassignments.OngoingTopicReassignment]) -> dict[str, Any]:
    """Return the values of a page about moves in progress: ``moving`` has a row for each of the first ones.

    ``moving_count`` is the number of all. Keys of a row: ``topic``, ``partition``, ``adding``, ``removing`` (brokers).
    """
    moving = [
        {
            "topic": topic.name,
            "partition": row.partition_index,
            "adding": row.adding_replicas,
            "removing": row.removing_replicas,
        }
        for topic in topics
        for row in topic.partitions
    ]
    return {"moving": moving[:PAGE_ROWS], "moving_count": len(moving)}


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
        if max(move.partition, *before, *after) > MAX_INT32:
            raise InvalidInput(f"moves: a number above {MAX_INT32}: {line[:100]}")
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


async def _request_reassignments(page: PageRequest, moves: Sequence[Move]) -> str:
    """Begin the moves and return a sentence about it.

    Raises:
        ProtocolError: a reassignment was refused; others may have begun.
    """
    topics: dict[str, alter_partition_reassignments.ReassignableTopic] = {}
    for move in moves:
        row = alter_partition_reassignments.ReassignablePartition(move.partition, list(move.after))
        topics.setdefault(move.topic, alter_partition_reassignments.ReassignableTopic(move.topic)).partitions.append(
            row
        )
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=list(topics.values()))
    response = await page.client.call(request)
    check(response.error_code, response.error_message, "reassignments")
    for topic in response.responses:
        for result in topic.partitions:
            check(result.error_code, result.error_message, f"{topic.name}-{result.partition_index}")
    return (
        f"The reassignment of {format_count(len(moves))} partitions has begun. Elect preferred leaders when no "
        "move is in progress."
    )


async def confirm_and_move(page: PageRequest, moves: Sequence[Move], title: str, plan_url: str) -> View:
    """Begin the reassignments, if the form is confirmed; else return the confirmation page.

    ``title``: of the change, such as ``Move partitions``; ``plan_url``: URL of the page of the plan.

    Raises:
        InvalidInput: the plan is out of date. ProtocolError: a reassignment was refused; others may have begun.
    """
    await _check_unchanged(page, moves)
    lines = [
        f"{move.topic}-{move.partition}: brokers {', '.join(map(str, move.before))} become "
        f"{', '.join(map(str, move.after))}."
        for move in moves
    ]
    lines.append(
        "Brokers copy the partitions that they get, which takes disk space and network. An old replica is removed when "
        "the new ones are in sync; no record is lost."
    )
    change = Change(title, lines, "Move the partitions", partial(_request_reassignments, page, moves), plan_url)
    return await confirm_and_execute(page, change)
