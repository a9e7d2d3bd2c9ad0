"""``ottla cluster remove NODE...``: drain nodes, wait until they stop, remove them from the voters and unregister them.

Each step can be repeated: after an interrupt the same command is run again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ottla.cli.arguments import integer, seconds
from ottla.cli.cluster_admin import reassignment
from ottla.cli.common import add_connection, print_output
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.controller.metadata.image import RESOURCE_BROKER
from ottla.controller.partitions.reassignment_plan import PlannedPartition, PlannedReassignment, drain
from ottla.jobs.job import run_to_end
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.runtime import blocking_env
from ottla.tools.node_removal import ClusterSnapshot, build_snapshot, must_remove_votes_first, removal_obstacle
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    describe_cluster,
    describe_configs,
    describe_quorum,
    remove_raft_voter,
    unregister_broker,
)

TEXT = "remove nodes: move their replicas, remove them as voters, unregister them"
WAIT_S = 600
ROUNDS = 5
"""Maximum number of drains of a node, since new replicas may be assigned to it during a drain."""
VOTER_CHANGE_TIMEOUT_S = 30.0
AUTO_JOIN = "controller.quorum.auto.join.enable"


class RemovalClient(reassignment.ReassignmentClient, Protocol):
    """Methods of `ClusterClient` that the removal of nodes needs."""

    def avoid_brokers(self, node_ids: Collection[int]) -> None:
        """Send requests for any broker to other brokers than ``node_ids``, which are about to stop, from now on."""


def add_verb(verbs: Any) -> None:
    """Add the parser of ``remove`` to the subparsers of ``ottla cluster``."""
    verb = verbs.add_parser("remove", help=TEXT, description=TEXT)
    add_connection(verb)
    verb.add_argument("nodes", type=integer(0), nargs="+", metavar="NODE", help="node ids of the nodes to remove")
    reassignment.add_throttle_options(verb)
    verb.add_argument(
        "--fewer-copies",
        action="store_true",
        help="reduce the replicas of partitions that have no other broker to move to",
    )
    verb.add_argument(
        "--wait",
        type=seconds,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"time to wait for the nodes to stop (default {WAIT_S})",
    )


async def _cluster_snapshot(client: RemovalClient) -> ClusterSnapshot:
    cluster = await client.call(describe_cluster.DescribeClusterRequest(include_fenced_brokers=True))
    raise_for_error(cluster.error_code, cluster.error_message, "the cluster")
    topics = await client.metadata(None)
    query = describe_quorum.DescribeQuorumRequestTopicData(
        METADATA_TOPIC, [describe_quorum.DescribeQuorumRequestPartitionData(0)]
    )
    quorum = await client.call(describe_quorum.DescribeQuorumRequest([query]))
    raise_for_error(quorum.error_code, quorum.error_message, "the quorum")
    raise_for_error(
        quorum.topics[0].partitions[0].error_code, None, "the quorum has no leader: ottla cluster recover --help"
    )
    return build_snapshot(cluster, topics, quorum)


async def _rejoins_as_voter(client: RemovalClient, seen: ClusterSnapshot, nodes: Collection[int]) -> bool:
    """Return True if a running broker among ``nodes`` has ``controller.quorum.auto.join.enable=true``.

    Such a node would become a voter again after its removal. Only brokers answer DescribeConfigs for themselves, so
    controller-only nodes are skipped.

    Raises:
        CommandFailed: a broker refused DescribeConfigs.
    """
    for node in nodes:
        if seen.brokers.get(node):
            request = describe_configs.DescribeConfigsRequest(
                [describe_configs.DescribeConfigsResource(RESOURCE_BROKER, str(node), [AUTO_JOIN])]
            )
            answer = await (await client.broker(node)).call(request)
            raise_for_error(answer.results[0].error_code, answer.results[0].error_message, f"node {node}")
            if any(row.value == "true" for row in answer.results[0].configs):
                return True
    return False


def plan_removal(snapshot: ClusterSnapshot, leaving: Collection[int], *, fewer: bool) -> list[PlannedReassignment]:
    """Return the reassignments that move all replicas off the nodes ``leaving``, sorted by partition.

    ``fewer``: permit a smaller replication factor for partitions without another broker to move to.

    Raises:
        CommandFailed: without ``fewer``, a replica has no target; with it, a partition would have no replica left, or
            its remaining replicas are not all in sync.
    """
    partitions = {at: p.replicas for at, p in snapshot.partitions.items()}
    moves, stuck = run_to_end(drain(snapshot.racks, partitions, leaving))
    shorter = [PlannedReassignment(at, tuple(i for i in partitions[at] if i not in leaving)) for at in stuck if fewer]
    impossible = stuck if not fewer else [change.partition for change in shorter if not change.replicas]
    if impossible:
        hint = "" if fewer else " (--fewer-copies reduces their replicas)"
        raise CommandFailed(
            f"{len(impossible)} partitions have no other broker to move to: {_partition_names(impossible)}{hint}"
        )
    waiting = [
        change.partition
        for change in shorter
        if not set(change.replicas) <= set(snapshot.partitions[change.partition].isr)
    ]
    if waiting:
        raise CommandFailed(
            f"{len(waiting)} partitions have remaining replicas that are not in sync: "
            f"{_partition_names(waiting)}; wait, or remove all failed nodes in one command"
        )
    return sorted([*moves, *shorter])


def _partition_names(partitions: Sequence[PlannedPartition]) -> str:
    return ", ".join(f"{topic}:{number}" for topic, number in partitions[:5])


def _plan_table(
    seen: ClusterSnapshot, leaving: Sequence[int], moves: Sequence[PlannedReassignment]
) -> list[dict[str, Any]]:
    """Return the rows of ``--dry-run``: ``moves``, then stop, removal of votes, unregistration of ``leaving`` nodes.

    Keys: ``step``, ``what`` (``TOPIC:PARTITION`` or ``node ID``), ``from`` and ``to`` (replicas; ``-`` for a node). The
    votes are removed before the stop if `must_remove_votes_first`.
    """
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
        ("stop", [i for i in leaving if seen.is_running(i)]),
        ("remove voter", [i for i in leaving if i in seen.voters]),
        ("unregister", [i for i in leaving if i in seen.brokers]),
    ]
    if must_remove_votes_first(seen, leaving):
        steps[:2] = reversed(steps[:2])
    return rows + [{"step": step, "what": f"node {i}", "from": "-", "to": "-"} for step, due in steps for i in due]


async def _drain_nodes(client: RemovalClient, options: argparse.Namespace, seen: ClusterSnapshot) -> ClusterSnapshot:
    """Move all replicas off the nodes to remove, in up to `ROUNDS` rounds; return the state of the cluster afterwards.

    Raises:
        CommandFailed: the nodes still have replicas after the last round, cannot be drained, or the cluster refused a
            request.
    """
    for _ in range(ROUNDS):
        moves = plan_removal(seen, options.nodes, fewer=options.fewer_copies)
        if not moves:
            return seen
        before = {at: list(p.replicas) for at, p in seen.partitions.items()}
        await reassignment.reassign(client, options, before, moves)
        seen = await _cluster_snapshot(client)
    raise CommandFailed("new replicas were assigned to the nodes while they were drained: stop the nodes and retry")


async def _wait_until_stopped(
    client: RemovalClient, options: argparse.Namespace, seen: ClusterSnapshot
) -> ClusterSnapshot:
    """Ask the operator to stop the nodes, and poll the cluster until none of them runs; return its state then.

    Raises:
        CommandFailed: a node still runs after ``--wait`` seconds.
    """
    env = blocking_env.BlockingEnv()
    until_ms = env.monotonic_ms() + options.wait * 1000
    reported: set[int] = set()
    while runs := [i for i in options.nodes if seen.is_running(i)]:
        for node in runs:
            if node not in reported:
                print(f"node {node} has no replicas left: stop it now", file=sys.stderr, flush=True)
                reported.add(node)
        if env.monotonic_ms() > until_ms:
            raise CommandFailed(f"node {runs[0]} is still running: stop it and retry")
        await env.sleep(reassignment.POLL_INTERVAL_S)
        seen = await _cluster_snapshot(client)
    return seen


async def _remove_voter(client: RemovalClient, seen: ClusterSnapshot, node: int) -> None:
    """Send RemoveRaftVoter for a node, and return once it is no voter; retry while another voter change is pending.

    Raises:
        CommandFailed: the request was refused, or was still pending after `VOTER_CHANGE_TIMEOUT_S`.
    """
    env = blocking_env.BlockingEnv()
    until_ms = env.monotonic_ms() + VOTER_CHANGE_TIMEOUT_S * 1000
    while True:
        answer = await client.call(
            remove_raft_voter.RemoveRaftVoterRequest(seen.cluster_id, node, seen.voters[node].directory_id)
        )
        if answer.error_code == ErrorCode.VOTER_NOT_FOUND:
            return
        if answer.error_code != ErrorCode.REQUEST_TIMED_OUT or env.monotonic_ms() > until_ms:
            raise_for_error(answer.error_code, answer.error_message, f"voter {node}")
            return
        await env.sleep(reassignment.POLL_INTERVAL_S)


async def remove_nodes(client: RemovalClient, options: argparse.Namespace) -> None:
    """Execute ``ottla cluster remove``: drain nodes, wait until they stop, remove their votes, and unregister them.

    If `must_remove_votes_first`, votes are removed before the stop. With ``--dry-run`` the steps are only printed. A
    vote or registration that is gone already is no error.

    Raises:
        CommandFailed: the nodes cannot be removed safely, or a step failed.
    """
    nodes, seen = list(dict.fromkeys(options.nodes)), await _cluster_snapshot(client)
    why = removal_obstacle(seen, nodes, joins_again=await _rejoins_as_voter(client, seen, nodes))
    if why is not None:
        raise CommandFailed(why)
    moves = plan_removal(seen, nodes, fewer=options.fewer_copies)
    if options.dry_run:
        print_output(_plan_table(seen, nodes, moves), options.output)
        return
    client.avoid_brokers(nodes)
    seen = await _drain_nodes(client, options, seen)
    if must_remove_votes_first(seen, nodes):
        await _remove_voters(client, seen, nodes)
        seen = await _cluster_snapshot(client)
    seen = await _wait_until_stopped(client, options, seen)
    seen = await _drain_nodes(client, options, seen)
    await _remove_voters(client, seen, nodes)
    for node in nodes:
        if node in seen.brokers:
            answer = await client.call(unregister_broker.UnregisterBrokerRequest(node))
            if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise_for_error(answer.error_code, answer.error_message, f"node {node}")
    print_output([{"removed": node} for node in nodes], options.output)


async def _remove_voters(client: RemovalClient, seen: ClusterSnapshot, nodes: Sequence[int]) -> None:
    """Remove the votes of nodes, those of dead nodes first, so that each removal leaves a larger live majority.

    Nodes that are no voters are skipped.

    Raises:
        CommandFailed: a removal was refused, or was still pending after `VOTER_CHANGE_TIMEOUT_S`.
    """
    for node in sorted((i for i in nodes if i in seen.voters), key=lambda i: seen.voters[i].is_alive):
        await _remove_voter(client, seen, node)
