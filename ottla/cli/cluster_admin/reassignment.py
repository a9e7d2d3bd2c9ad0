"""``ottla cluster elect | reassign | drain | rebalance``: move leaders and replicas of any Kafka cluster.

The command plans a drain or rebalance and executes it by reassignments of a limited number of partitions at a time.
Interrupting the command cancels no reassignment: ``reassign`` lists the active ones, ``reassign --cancel`` cancels
them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from ottla.cli.arguments import MAX_INT32, MAX_INT64, integer, parse_integer
from ottla.cli.common import add_connection, print_output, require_partition
from ottla.cli.errors import CommandFailed, error_text, raise_for_error
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.partitions.reassignment_plan import PlannedPartition, PlannedReassignment, drain, rebalance
from ottla.jobs.job import run_to_end
from ottla.runtime import blocking_env
from ottla.tools.reassignment_throttle import throttle_configs, throttle_removals
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import alter_partition_reassignments, describe_cluster, elect_leaders
from ottla.wire.messages.incremental_alter_configs import AlterConfigsResource, IncrementalAlterConfigsRequest
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
)

TIMEOUT_MS = 30_000
CONCURRENT_MOVES = 50
ELECTED = "elected"
POLL_INTERVAL_S = 0.5
_TEXTS = {
    "elect": "elect the preferred leader of each partition, if it is in sync",
    "reassign": "show reassignments in progress; start, change or cancel some",
    "drain": "move all replicas off a broker, so that it can be removed",
    "rebalance": "spread replicas and leaders evenly over all live brokers",
}


class ReassignmentClient(Protocol):
    """Methods of `ClusterClient` that elections and reassignments need."""

    async def metadata(self, topics: list[str] | None) -> Any:
        """Return the Metadata response: live brokers, and ``topics`` with their partitions; None for all topics."""

    async def call(self, request: Any) -> Any:
        """Send a request to any broker and return its response."""

    async def broker(self, node_id: int) -> Any:
        """Return a connection to broker ``node_id`` of the last Metadata response."""


def add_verbs(verbs: Any) -> None:
    """Add the parsers of ``elect``, ``reassign``, ``drain`` and ``rebalance`` to ``verbs`` of ``ottla cluster``."""
    for name, text in _TEXTS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        if name == "elect":
            verb.add_argument(
                "partitions", nargs="*", metavar="TOPIC:PARTITION", help="only these partitions (default: all)"
            )
            verb.add_argument(
                "--unclean",
                action="store_true",
                help="elect a live out-of-sync replica for partitions without a leader; may lose records",
            )
        elif name == "reassign":
            verb.add_argument(
                "moves", nargs="*", metavar="TOPIC:PARTITION=ID,ID,...", help="new replicas of the partition"
            )
            verb.add_argument(
                "--cancel", action="append", default=[], metavar="TOPIC:PARTITION", help="cancel a reassignment"
            )
        else:
            if name == "drain":
                verb.add_argument("broker", type=integer(0), help="node id of the broker")
            add_throttle_options(verb)


def add_throttle_options(verb: argparse.ArgumentParser) -> None:
    """Add the options ``--dry-run``, ``--at-once`` (partitions) and ``--throttle`` (bytes per second) to a verb."""
    verb.add_argument("--dry-run", action="store_true", help="show what would move, and change nothing")
    verb.add_argument(
        "--at-once",
        type=integer(1),
        default=CONCURRENT_MOVES,
        metavar="N",
        help=f"number of partitions that move at a time (default {CONCURRENT_MOVES})",
    )
    verb.add_argument(
        "--throttle",
        type=integer(1, MAX_INT64),
        metavar="BYTES",
        help="limit in bytes per second on each broker (default: no limit)",
    )


def parse_partition(text: str) -> PlannedPartition:
    """Return topic and partition number of the command line argument ``TOPIC:PARTITION``.

    Raises:
        CommandFailed: the text has another form.
    """
    topic, colon, number = text.rpartition(":")
    value = parse_integer(number)
    if not (colon and topic) or value is None or not 0 <= value <= MAX_INT32:
        raise CommandFailed(f"TOPIC:PARTITION expected: {text}")
    return topic, value


def parse_reassignment(text: str) -> PlannedReassignment:
    """Return partition and target replicas of the command line argument ``TOPIC:PARTITION=ID,ID,...``.

    Raises:
        CommandFailed: the text has another form.
    """
    at, equals, ids = text.partition("=")
    replicas = [value for value in map(parse_integer, ids.split(",")) if value is not None and 0 <= value <= MAX_INT32]
    if not equals or len(replicas) != len(ids.split(",")):
        raise CommandFailed(f"TOPIC:PARTITION=ID,ID,... expected: {text}")
    return PlannedReassignment(parse_partition(at), tuple(replicas))


def _by_topic(partitions: Iterable[PlannedPartition]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for topic, number in partitions:
        out.setdefault(topic, []).append(number)
    return out


def _election_result(code: int) -> str:
    """Return ``elected`` for error code 0, else the name of the error in lower case."""
    try:
        return ErrorCode(code).name.lower() if code else ELECTED
    except ValueError:
        return f"error {code}"


async def _elect_in(
    client: ReassignmentClient, kind: int, partitions: Collection[PlannedPartition] | None
) -> list[dict[str, Any]]:
    """Send ElectLeaders and return an output row for each partition; those that needed no election are left out.

    Keys: ``topic``, ``partition`` and ``result`` (`_election_result`).

    Args:
        client: client of the cluster.
        kind: election type: 0 preferred, 1 unclean.
        partitions: partitions to elect leaders for; None stands for all.

    Raises:
        CommandFailed: the response has a top-level error code.
    """
    named = None
    if partitions is not None:
        named = [elect_leaders.TopicPartitions(topic, numbers) for topic, numbers in _by_topic(partitions).items()]
    answer = await client.call(elect_leaders.ElectLeadersRequest(kind, named, TIMEOUT_MS))
    raise_for_error(answer.error_code, None, "elect")
    return [
        {"topic": topic.topic, "partition": row.partition_id, "result": _election_result(row.error_code)}
        for topic in answer.replica_election_results
        for row in topic.partition_result
        if row.error_code != ErrorCode.ELECTION_NOT_NEEDED
    ]


async def _elect(client: ReassignmentClient, options: argparse.Namespace) -> None:
    wanted = [parse_partition(text) for text in options.partitions] or None
    if wanted is not None:
        there = await _live_brokers_and_replicas(client, moving=True)
        _require_partitions(there[1], wanted)
    rows = await _elect_in(client, int(options.unclean), wanted)
    print_output(rows, options.output, "no elections needed")
    failed = [row for row in rows if row["result"] != ELECTED]
    if failed:
        at = f"{failed[0]['topic']}:{failed[0]['partition']}: {failed[0]['result']}"
        raise CommandFailed(f"{len(failed)} of {len(rows)} elections failed: {at}")


def _require_partitions(there: Collection[PlannedPartition], wanted: Iterable[PlannedPartition]) -> None:
    """Check that all ``wanted`` partitions are among ``there``, the partitions of the cluster.

    Raises:
        CommandFailed: a topic or partition does not exist.
    """
    for topic, number in wanted:
        if (topic, number) not in there:
            numbers = [n for name, n in there if name == topic]
            if not numbers:
                raise CommandFailed(f"topic {topic} does not exist")
            require_partition(topic, numbers, number)


async def _ongoing_reassignments(client: ReassignmentClient) -> dict[PlannedPartition, OngoingPartitionReassignment]:
    answer = await client.call(ListPartitionReassignmentsRequest(TIMEOUT_MS, None))
    raise_for_error(answer.error_code, answer.error_message, "reassign")
    return {(t.name, p.partition_index): p for t in answer.topics for p in t.partitions}


async def _request_reassignments(
    client: ReassignmentClient, moves: Sequence[tuple[PlannedPartition, list[int] | None]]
) -> None:
    topics: dict[str, alter_partition_reassignments.ReassignableTopic] = {}
    for (topic, number), replicas in moves:
        row = topics.setdefault(topic, alter_partition_reassignments.ReassignableTopic(topic))
        row.partitions.append(alter_partition_reassignments.ReassignablePartition(number, replicas))
    request = alter_partition_reassignments.AlterPartitionReassignmentsRequest(TIMEOUT_MS, topics=list(topics.values()))
    answer = await client.call(request)
    raise_for_error(answer.error_code, answer.error_message, "reassign")
    for done in answer.responses:
        for row in done.partitions:
            raise_for_error(row.error_code, row.error_message, f"{done.name}:{row.partition_index}")


async def _reassign(client: ReassignmentClient, options: argparse.Namespace) -> None:
    moves: list[tuple[PlannedPartition, list[int] | None]] = [(parse_partition(text), None) for text in options.cancel]
    moves += [(change.partition, list(change.replicas)) for change in map(parse_reassignment, options.moves)]
    if moves:
        brokers, there = await _live_brokers_and_replicas(client, moving=True)
        _require_partitions(there, [at for at, _ in moves])
        for broker in sorted({i for _, replicas in moves for i in replicas or ()}):
            await _require_broker(client, {*brokers, *(i for replicas in there.values() for i in replicas)}, broker)
        await _request_reassignments(client, moves)
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": p.replicas,
            "adding": p.adding_replicas,
            "removing": p.removing_replicas,
        }
        for (topic, number), p in sorted((await _ongoing_reassignments(client)).items())
    ]
    print_output(rows, options.output, "no reassignments in progress")


async def _require_broker(client: ReassignmentClient, seen: Collection[int], wanted: int) -> None:
    """Check that broker ``wanted`` is registered, fenced or not.

    Args:
        client: client of the cluster, asked only about brokers that are not in ``seen``.
        seen: ids of brokers that are known to exist.
        wanted: id of the broker.

    Raises:
        CommandFailed: the broker is not registered.
    """
    if wanted in seen:
        return
    answer = await client.call(describe_cluster.DescribeClusterRequest(include_fenced_brokers=True))
    raise_for_error(answer.error_code, answer.error_message, "the cluster")
    known = sorted(broker.broker_id for broker in answer.brokers)
    if wanted not in known:
        raise CommandFailed(f"broker {wanted} does not exist (brokers: {', '.join(map(str, known))})")


async def _live_brokers_and_replicas(
    client: ReassignmentClient, *, moving: bool = False
) -> tuple[dict[int, str | None], dict[PlannedPartition, list[int]]]:
    """Return the rack of each live broker, None without a rack, and the replicas of each partition.

    Partitions with an ongoing reassignment are left out unless ``moving`` is True.
    """
    answer = await client.metadata(None)
    left_out = set() if moving else set(await _ongoing_reassignments(client))
    partitions = {
        (topic.name or "", p.partition_index): list(p.replica_nodes)
        for topic in answer.topics
        for p in topic.partitions
        if (topic.name or "", p.partition_index) not in left_out
    }
    return {b.node_id: b.rack for b in answer.brokers}, partitions


async def _drain(client: ReassignmentClient, options: argparse.Namespace) -> None:
    racks, partitions = await _live_brokers_and_replicas(client)
    seen = {*racks, *(i for replicas in partitions.values() for i in replicas)}
    await _require_broker(client, seen, options.broker)
    moves, stuck = run_to_end(drain(racks, partitions, [options.broker]))
    await _execute_plan(client, options, partitions, moves)
    if stuck:
        names = ", ".join(f"{topic}:{number}" for topic, number in stuck[:5])
        raise CommandFailed(f"{len(stuck)} partitions have no other broker to move to: {names}")


async def _rebalance(client: ReassignmentClient, options: argparse.Namespace) -> None:
    racks, partitions = await _live_brokers_and_replicas(client)
    await _execute_plan(client, options, partitions, run_to_end(rebalance(racks, partitions)))


async def _execute_plan(
    client: ReassignmentClient,
    options: argparse.Namespace,
    before: dict[PlannedPartition, list[int]],
    moves: Sequence[PlannedReassignment],
) -> None:
    """Print the planned reassignments if ``--dry-run`` is set; else execute them to their end and print their number.

    ``before``: present replicas of each partition; ``moves``: the planned reassignments.

    Raises:
        CommandFailed: the cluster refused a request.
    """
    if options.dry_run:
        rows: list[dict[str, Any]] = [
            {"topic": m.partition[0], "partition": m.partition[1], "from": before[m.partition], "to": list(m.replicas)}
            for m in moves
        ]
        print_output(rows, options.output, "nothing to move")
        return
    await reassign(client, options, before, moves)
    print_output([{"moved": len(moves)}], options.output)


async def reassign(
    client: ReassignmentClient,
    options: argparse.Namespace,
    before: dict[PlannedPartition, list[int]],
    moves: Sequence[PlannedReassignment],
) -> None:
    """Execute reassignments to their end, at most ``--at-once`` partitions at a time, then elect the preferred leaders.

    ``before``: present replicas of each partition. The replication throttle of ``--throttle`` is set before, and
    removed at the end, also after an interrupt or error; the reassignments in progress are not cancelled then. If a
    change of it is refused, nothing moves, and what was set is removed; for a broker that cannot be reached it is left
    out, with a message on standard error.

    Raises:
        CommandFailed: the cluster refused a request.
    """
    held = [] if options.throttle is None else throttle_configs(moves, before, options.throttle)
    changed: list[AlterConfigsResource] = []
    try:
        await _set(client, held, changed)
        await _move(client, moves, options.at_once)
    finally:
        await _set(client, throttle_removals(changed), [])


async def _move(client: ReassignmentClient, moves: Sequence[PlannedReassignment], at_once: int) -> None:
    waiting = list(moves)
    moving: set[PlannedPartition] = set()
    env = blocking_env.BlockingEnv()
    while waiting or moving:
        slots = max(0, at_once - len(moving))
        begun, waiting = waiting[:slots], waiting[slots:]
        if begun:
            await _request_reassignments(client, [(move.partition, list(move.replicas)) for move in begun])
        moving = {*moving, *(move.partition for move in begun)} & set(await _ongoing_reassignments(client))
        _print_progress(len(moves) - len(waiting) - len(moving), len(moves))
        if moving:
            await env.sleep(POLL_INTERVAL_S)
    if moves:
        await _elect_in(client, 0, [move.partition for move in moves])


async def _set(
    client: ReassignmentClient, rows: list[AlterConfigsResource], changed: list[AlterConfigsResource]
) -> None:
    """Send IncrementalAlterConfigs: for topics to any broker, and for each broker to that broker.

    A broker refuses the request for another broker. A broker that cannot be reached is reported on standard error.
    Those of ``rows`` that were sent and not refused are added to ``changed``, also if this fails or is interrupted.
    Raises CommandFailed if the change of a resource was refused.
    """
    refused = []
    topics = [row for row in rows if row.resource_type != RESOURCE_BROKER]
    for part in filter(None, (topics, *([row] for row in rows if row not in topics))):
        name = part[0].resource_name
        changed += part
        try:
            node = client if part is topics else await client.broker(int(name))
            refused += [x for x in (await node.call(IncrementalAlterConfigsRequest(part))).responses if x.error_code]
        except (OSError, ProtocolError) as error:  # a broker that is down neither leads nor fetches
            if part is topics:
                raise
            print(f"throttle of broker {name} is not changed: {error_text(error, name)}", file=sys.stderr)
    names = {(row.resource_type, row.resource_name) for row in refused}
    changed[:] = [x for x in changed if (x.resource_type, x.resource_name) not in names]
    for row in refused:
        raise_for_error(row.error_code, row.error_message, f"throttle {row.resource_name}")


def _print_progress(done: int, total: int) -> None:
    """Print a progress bar of ``done`` of ``total`` partitions on standard error, in place, if it is a terminal."""
    if sys.stderr.isatty():
        width = 40 * done // total
        bar = f"\r[{'#' * width}{'.' * (40 - width)}] {done} of {total} partitions"
        print(bar, end="\n" if done == total else "", file=sys.stderr, flush=True)


VERBS: dict[str, Callable[[ReassignmentClient, argparse.Namespace], Awaitable[None]]] = {
    "elect": _elect,
    "reassign": _reassign,
    "drain": _drain,
    "rebalance": _rebalance,
}
