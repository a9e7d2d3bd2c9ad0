"""``ottla cluster remove NODE...``: nodes leave for good. Empty them, see them stopped, take votes, strike them off.

Each step is one that may be done again, so whoever broke the command off just runs it once more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ottla.cli import blocking, cluster_moves
from ottla.cli.common import Failed, add_connection, check, show
from ottla.controller.decision import run_to_end
from ottla.controller.image import RESOURCE_BROKER
from ottla.controller.plan_moves import PlannedPartition, PlannedReassignment, drain
from ottla.log.directory import METADATA_TOPIC
from ottla.tools.removal import Sight, refusal, sight, votes_to_the_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_cluster as dc
from ottla.wire.messages import describe_configs as cf
from ottla.wire.messages import describe_quorum as dq
from ottla.wire.messages import remove_raft_voter as rv
from ottla.wire.messages import unregister_broker as ub

TEXT = "have nodes leave for good: their replicas go to others, then their votes and their places"
WAIT_S = 600
ROUNDS = 5
"""So often what came to a node while it was emptied is moved, too."""
PATIENCE_S = 30.0
AUTO_JOIN = "controller.quorum.auto.join.enable"


class Asks(cluster_moves.Asks, Protocol):
    """The part of a client that is needed here."""

    def stay_away_from(self, node_ids: Collection[int]) -> None:
        """Ask others from now on."""


def add_verb(verbs: Any) -> None:
    """Add the parser to the subparsers of ``ottla cluster``."""
    verb = verbs.add_parser("remove", help=TEXT, description=TEXT)
    add_connection(verb)
    verb.add_argument("nodes", type=int, nargs="+", metavar="NODE", help="node ids: those that leave together")
    cluster_moves.add_pace(verb)
    verb.add_argument(
        "--fewer-copies", action="store_true", help="what has no other broker to go to has one replica less after it"
    )
    verb.add_argument(
        "--wait", type=float, default=WAIT_S, metavar="SECONDS", help=f"for nodes to be stopped (default {WAIT_S})"
    )


async def _look(client: Asks) -> Sight:
    cluster = await client.call(dc.DescribeClusterRequest(include_fenced_brokers=True))
    check(cluster.error_code, cluster.error_message, "the cluster")
    topics = await client.metadata(None)
    asked = dq.DescribeQuorumRequestTopicData(METADATA_TOPIC, [dq.DescribeQuorumRequestPartitionData(0)])
    quorum = await client.call(dq.DescribeQuorumRequest([asked]))
    check(quorum.error_code, quorum.error_message, "the quorum")
    check(quorum.topics[0].partitions[0].error_code, None, "the quorum has no leader: ottla cluster recover --help")
    return sight(cluster, topics, quorum)


async def _joins_again(client: Asks, seen: Sight, nodes: Collection[int]) -> bool:
    """Whether one that runs takes its vote again; only a broker can be asked."""
    for node in nodes:
        if seen.brokers.get(node):
            request = cf.DescribeConfigsRequest([cf.DescribeConfigsResource(RESOURCE_BROKER, str(node), [AUTO_JOIN])])
            answer = await (await client.broker(node)).call(request)
            check(answer.results[0].error_code, answer.results[0].error_message, f"node {node}")
            if any(row.value == "true" for row in answer.results[0].configs):
                return True
    return False


def plan(seen: Sight, leaving: Collection[int], *, fewer: bool) -> list[PlannedReassignment]:
    """What has to lie elsewhere.

    Raises:
        Failed: something has nowhere to go.
    """
    partitions = {at: p.replicas for at, p in seen.partitions.items()}
    moves, stuck = run_to_end(drain(seen.racks, partitions, leaving))
    shorter = [PlannedReassignment(at, tuple(i for i in partitions[at] if i not in leaving)) for at in stuck if fewer]
    impossible = stuck if not fewer else [change.partition for change in shorter if not change.replicas]
    if impossible:
        hint = "" if fewer else " (--fewer-copies leaves them with fewer replicas)"
        raise Failed(f"{len(impossible)} partitions have no other broker to go to: {_named(impossible)}{hint}")
    waiting = [
        change.partition for change in shorter if not set(change.replicas) <= set(seen.partitions[change.partition].isr)
    ]
    if waiting:
        raise Failed(
            f"{len(waiting)} partitions keep their replicas until all that stay are in sync: {_named(waiting)}; "
            "wait, or remove the nodes that are dead together"
        )
    return sorted([*moves, *shorter])


def _named(partitions: Sequence[PlannedPartition]) -> str:
    return ", ".join(f"{topic}:{number}" for topic, number in partitions[:5])


def _rows(seen: Sight, leaving: Sequence[int], moves: Sequence[PlannedReassignment]) -> list[dict[str, Any]]:
    """What would be done, in its order."""
    rows: list[dict[str, Any]] = [
        {
            "step": "move",
            "what": f"{m.partition[0]}:{m.partition[1]}",
            "from": list(seen.partitions[m.partition].replicas),
            "to": list(m.replicas),
        }
        for m in moves
    ]
    steps = [
        ("stop", [i for i in leaving if seen.runs(i)]),
        ("take the vote of", [i for i in leaving if i in seen.voters]),
        ("strike off", [i for i in leaving if i in seen.brokers]),
    ]
    if votes_to_the_end(seen, leaving):
        steps[:2] = reversed(steps[:2])
    return rows + [{"step": step, "what": f"node {i}", "from": "-", "to": "-"} for step, due in steps for i in due]


async def _empty(client: Asks, options: argparse.Namespace, seen: Sight) -> Sight:
    """Move everything off the nodes, also what comes to them meanwhile."""
    for _ in range(ROUNDS):
        moves = plan(seen, options.nodes, fewer=options.fewer_copies)
        if not moves:
            return seen
        before = {at: list(p.replicas) for at, p in seen.partitions.items()}
        await cluster_moves.move(client, options, before, moves)
        seen = await _look(client)
    raise Failed("new partitions come faster than they go: stop what leaves and run this again")


async def _stopped(client: Asks, options: argparse.Namespace, seen: Sight) -> Sight:
    """Wait until none of the nodes runs."""
    world = blocking.BlockingEnv()
    until_ms = world.monotonic_ms() + options.wait * 1000
    said: set[int] = set()
    while runs := [i for i in options.nodes if seen.runs(i)]:
        for node in runs:
            if node not in said:
                print(f"node {node} holds nothing any more: stop it now", file=sys.stderr, flush=True)
                said.add(node)
        if world.monotonic_ms() > until_ms:
            raise Failed(f"node {runs[0]} still runs: stop it and run this again")
        await world.sleep(cluster_moves.LOOK_EVERY_S)
        seen = await _look(client)
    return seen


async def _take_vote(client: Asks, seen: Sight, node: int) -> None:
    """One change of the voters at a time: where another is under way it is tried again."""
    world = blocking.BlockingEnv()
    until_ms = world.monotonic_ms() + PATIENCE_S * 1000
    while True:
        answer = await client.call(rv.RemoveRaftVoterRequest(seen.cluster_id, node, seen.voters[node].directory_id))
        if answer.error_code == ErrorCode.VOTER_NOT_FOUND:
            return
        if answer.error_code != ErrorCode.REQUEST_TIMED_OUT or world.monotonic_ms() > until_ms:
            check(answer.error_code, answer.error_message, f"the vote of node {node}")
            return
        await world.sleep(cluster_moves.LOOK_EVERY_S)


async def remove(client: Asks, options: argparse.Namespace) -> None:
    """Do it all, or show what would be done."""
    nodes, seen = list(dict.fromkeys(options.nodes)), await _look(client)
    why = refusal(seen, nodes, joins_again=await _joins_again(client, seen, nodes))
    if why is not None:
        raise Failed(why)
    moves = plan(seen, nodes, fewer=options.fewer_copies)
    if options.dry_run:
        show(_rows(seen, nodes, moves), options.output)
        return
    client.stay_away_from(nodes)
    seen = await _empty(client, options, seen)
    if votes_to_the_end(seen, nodes):
        await _take_votes(client, seen, nodes)
        seen = await _look(client)
    seen = await _stopped(client, options, seen)
    seen = await _empty(client, options, seen)
    await _take_votes(client, seen, nodes)
    for node in nodes:
        if node in seen.brokers:
            answer = await client.call(ub.UnregisterBrokerRequest(node))
            if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                check(answer.error_code, answer.error_message, f"node {node}")
    show([{"removed": node} for node in nodes], options.output)


async def _take_votes(client: Asks, seen: Sight, nodes: Sequence[int]) -> None:
    """The dead first: each that goes makes the rest more of a majority."""
    for node in sorted((i for i in nodes if i in seen.voters), key=lambda i: seen.voters[i].alive):
        await _take_vote(client, seen, node)
