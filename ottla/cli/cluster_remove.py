"""``ottla cluster remove NODE``: a node leaves for good. Empty it, see it stopped, take its vote, strike it off.

Each step is one that may be done again, so whoever broke the command off just runs it once more.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ottla.cli import blocking, cluster_moves
from ottla.cli.common import Failed, add_connection, check, show
from ottla.controller.decision import at_once
from ottla.controller.image import RESOURCE_BROKER
from ottla.controller.plan_moves import At, Change, drain
from ottla.log.directory import METADATA_TOPIC
from ottla.tools.removal import Sight, refusal, sight, votes_to_the_end
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_cluster as dc
from ottla.wire.messages import describe_configs as cf
from ottla.wire.messages import describe_quorum as dq
from ottla.wire.messages import remove_raft_voter as rv
from ottla.wire.messages import unregister_broker as ub

TEXT = "have a node leave for good: its replicas go to others, then its vote and its place"
WAIT_S = 600
ROUNDS = 5
"""So often what came to a node while it was emptied is moved, too."""
PATIENCE_S = 30.0
AUTO_JOIN = "controller.quorum.auto.join.enable"


class Asks(cluster_moves.Asks, Protocol):
    """The part of a client that is needed here."""

    def stay_away_from(self, node_id: int) -> None:
        """Ask another one from now on."""

    async def broker(self, node_id: int) -> Any:
        """A connection to one of them."""


def add_verb(verbs: Any) -> None:
    """Add the parser to the subparsers of ``ottla cluster``."""
    verb = verbs.add_parser("remove", help=TEXT, description=TEXT)
    add_connection(verb)
    verb.add_argument("node", type=int, help="its node id")
    cluster_moves.add_pace(verb)
    verb.add_argument(
        "--fewer-copies", action="store_true", help="what has no other broker to go to has one replica less after it"
    )
    verb.add_argument(
        "--wait", type=float, default=WAIT_S, metavar="SECONDS", help=f"for the node to be stopped (default {WAIT_S})"
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


async def _joins_again(client: Asks, seen: Sight, node: int) -> bool:
    """Whether a node that runs takes its vote again; only a broker can be asked."""
    if not seen.brokers.get(node):
        return False
    request = cf.DescribeConfigsRequest([cf.DescribeConfigsResource(RESOURCE_BROKER, str(node), [AUTO_JOIN])])
    answer = await (await client.broker(node)).call(request)
    check(answer.results[0].error_code, answer.results[0].error_message, f"node {node}")
    return any(row.value == "true" for row in answer.results[0].configs)


def plan(seen: Sight, node: int, *, fewer: bool) -> list[Change]:
    """What has to lie elsewhere.

    Raises:
        Failed: something has nowhere to go.
    """
    partitions = {at: p.replicas for at, p in seen.partitions.items()}
    moves, stuck = at_once(drain(seen.racks, partitions, [node]))
    shorter = [Change(at, tuple(i for i in partitions[at] if i != node)) for at in stuck if fewer]
    impossible = stuck if not fewer else [change.at for change in shorter if not change.replicas]
    if impossible:
        names = ", ".join(f"{topic}:{number}" for topic, number in impossible[:5])
        hint = "" if fewer else " (--fewer-copies leaves them with a replica less)"
        raise Failed(f"{len(impossible)} partitions have no other broker to go to: {names}{hint}")
    return sorted([*moves, *shorter])


def _rows(seen: Sight, node: int, moves: Sequence[Change]) -> list[dict[str, Any]]:
    """What would be done, in its order."""
    rows: list[dict[str, Any]] = [
        {
            "step": "move",
            "what": f"{m.at[0]}:{m.at[1]}",
            "from": list(seen.partitions[m.at].replicas),
            "to": list(m.replicas),
        }
        for m in moves
    ]
    steps = [("stop", seen.runs(node)), ("take the vote of", node in seen.voters), ("strike off", node in seen.brokers)]
    if votes_to_the_end(seen, node):
        steps[:2] = reversed(steps[:2])
    return rows + [{"step": step, "what": f"node {node}", "from": "-", "to": "-"} for step, due in steps if due]


async def _empty(client: Asks, options: argparse.Namespace, seen: Sight) -> Sight:
    """Move everything off the node, also what comes to it meanwhile."""
    for _ in range(ROUNDS):
        moves = plan(seen, options.node, fewer=options.fewer_copies)
        if not moves:
            return seen
        before: Mapping[At, Sequence[int]] = {at: p.replicas for at, p in seen.partitions.items()}
        await cluster_moves.move(client, options, {at: list(replicas) for at, replicas in before.items()}, moves)
        seen = await _look(client)
    raise Failed(f"new partitions come to node {options.node} faster than they go: stop it and run this again")


async def _stopped(client: Asks, options: argparse.Namespace, seen: Sight) -> Sight:
    """Wait until the node does not run."""
    world = blocking.BlockingEnv()
    until_ms = world.monotonic_ms() + options.wait * 1000
    said = False
    while seen.runs(options.node):
        if not said:
            print(f"node {options.node} holds nothing any more: stop it now", file=sys.stderr, flush=True)
            said = True
        if world.monotonic_ms() > until_ms:
            raise Failed(f"node {options.node} still runs: stop it and run this again")
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
    node, seen = options.node, await _look(client)
    why = refusal(seen, node, joins_again=await _joins_again(client, seen, node))
    if why is not None:
        raise Failed(why)
    moves = plan(seen, node, fewer=options.fewer_copies)
    if options.dry_run:
        show(_rows(seen, node, moves), options.output)
        return
    client.stay_away_from(node)
    seen = await _empty(client, options, seen)
    if votes_to_the_end(seen, node):
        await _take_vote(client, seen, node)
        seen = await _look(client)
    seen = await _stopped(client, options, seen)
    seen = await _empty(client, options, seen)
    if node in seen.voters:
        await _take_vote(client, seen, node)
    if node in seen.brokers:
        answer = await client.call(ub.UnregisterBrokerRequest(node))
        if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
            check(answer.error_code, answer.error_message, f"node {node}")
    show([{"removed": node}], options.output)
