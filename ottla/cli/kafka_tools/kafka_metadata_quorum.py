"""``ottla kafka-metadata-quorum``: the tool ``kafka-metadata-quorum.sh``, without ``add-controller``.

Source: ``MetadataQuorumCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from typing import Any

from ottla.cli.arguments import integer
from ottla.cli.kafka_tools.text_tables import print_table
from ottla.cli.kafka_tools.tool_options import ToolFailed, VerbOptions, add_servers, admin_channel, raise_for, run_tool
from ottla.client.channel import Channel
from ottla.client.cluster_client import CONTROLLERS, ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.messages import describe_quorum as dq
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

TEXT = "This tool describes kraft metadata quorum status."
TOPIC = "__cluster_metadata"
BROKERS = 1
HEADS = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")


def _parser() -> VerbOptions:
    out = VerbOptions("ottla kafka-metadata-quorum", description=TEXT)
    add_servers(out)
    out.add_argument("--command-config", help="Property file containing configs to be passed to Admin Client.")
    verbs = out.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = verbs.add_parser("describe", help="Describe the metadata quorum info.")
    describe.add_argument("--status", action="store_true", help="A short summary of the quorum status.")
    describe.add_argument("--replication", action="store_true", help="The status of replication.")
    describe.add_argument("--human-readable", action="store_true", help="With --replication: times before now.")
    remove = verbs.add_parser("remove-controller", help="Remove a controller from the KRaft controller cluster.")
    remove.add_argument("--controller-id", "-i", type=integer(-(2**31)), required=True, help="Id of the controller.")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="Directory id of the controller.")
    remove.add_argument("--dry-run", action="store_true", help="Only print what would be done.")
    return out


async def _described(channel: Channel) -> tuple[Any, dq.DescribeQuorumResponse]:
    """Return the row of the metadata partition, and the whole response."""
    request = dq.DescribeQuorumRequest(
        [dq.DescribeQuorumRequestTopicData(TOPIC, [dq.DescribeQuorumRequestPartitionData(0)])]
    )
    answer = await channel.call(request)
    raise_for(answer.error_code, answer.error_message)
    row = answer.topics[0].partitions[0]
    raise_for(row.error_code, row.error_message)
    return row, answer


def _replica(state: Any, answer: dq.DescribeQuorumResponse) -> str:
    """Return a voter or observer as JSON, with its directory and endpoints if they are known."""
    parts = [f'"id": {state.replica_id}']
    if state.replica_directory_id != ZERO_UUID:
        parts.append(f'"directoryId": "{uuid_to_string(state.replica_directory_id)}"')
    node = next((node for node in answer.nodes if node.node_id == state.replica_id), None)
    if node is not None and node.listeners:
        ends = (f'"{at.name}://{_host(at.host)}:{at.port}"' for at in node.listeners)
        parts.append(f'"endpoints": [{", ".join(ends)}]')
    return f"{{{', '.join(parts)}}}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _status(channel: Channel, options: argparse.Namespace) -> None:
    kind = CONTROLLERS if options.bootstrap_controller else BROKERS
    cluster = await channel.call(DescribeClusterRequest(endpoint_type=kind))
    raise_for(cluster.error_code, cluster.error_message)
    row, answer = await _described(channel)
    leader = next(x for x in row.current_voters if x.replica_id == row.leader_id)
    slowest = min(row.current_voters, key=lambda x: x.log_end_offset)
    lag_ms = 0
    if slowest is not leader:
        times = leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp
        lag_ms = times[0] - times[1] if min(times) >= 0 else -1
    for name, value in (
        ("ClusterId", cluster.cluster_id),
        ("LeaderId", row.leader_id),
        ("LeaderEpoch", row.leader_epoch),
        ("HighWatermark", row.high_watermark),
        ("MaxFollowerLag", leader.log_end_offset - slowest.log_end_offset),
        ("MaxFollowerLagTimeMs", lag_ms),
        ("CurrentVoters", f"[{', '.join(_replica(x, answer) for x in row.current_voters)}]"),
        ("CurrentObservers", f"[{', '.join(_replica(x, answer) for x in row.observers)}]"),
    ):
        print(f"{name}:".ljust(24) + str(value))


async def _replication(channel: Channel, *, human_readable: bool) -> None:
    row, _ = await _described(channel)
    leader = next(x for x in row.current_voters if x.replica_id == row.leader_id)
    now_ms = BlockingEnv().now_ms()

    def time(ms: int) -> str:
        return f"{max(now_ms - ms, 0)} ms ago" if human_readable and ms >= 0 else str(ms)

    rows = []
    followers = [x for x in row.current_voters if x is not leader]
    for states, status in (([leader], "Leader"), (followers, "Follower"), (row.observers, "Observer")):
        for x in states:
            times = time(x.last_fetch_timestamp), time(x.last_caught_up_timestamp)
            lag = leader.log_end_offset - x.log_end_offset
            directory = uuid_to_string(x.replica_directory_id)
            rows.append([x.replica_id, directory, x.log_end_offset, lag, *times, status])
    print_table(HEADS, rows)


async def _remove(channel: Channel, options: argparse.Namespace) -> None:
    if options.controller_id < 0:
        raise ToolFailed(f"Invalid negative --controller-id: {options.controller_id}")
    try:
        directory = uuid_from_string(options.controller_directory_id)
    except ValueError as error:
        raise ToolFailed(f"Failed to parse --controller-directory-id: {error}") from None
    if not options.dry_run:
        answer = await channel.call(RemoveRaftVoterRequest(None, options.controller_id, directory))
        raise_for(answer.error_code, answer.error_message)
    done = "DRY RUN of removing " if options.dry_run else "Removed "
    print(f"{done} KRaft controller {options.controller_id} with directory id {uuid_to_string(directory)}")


async def _act(client: ClusterClient, options: argparse.Namespace) -> None:
    channel = await admin_channel(client, options)
    if options.command == "remove-controller":
        await _remove(channel, options)
    elif options.status and options.replication:
        raise ToolFailed("Only one of --status or --replication should be specified with describe sub-command")
    elif options.replication:
        await _replication(channel, human_readable=options.human_readable)
    elif not options.status:
        raise ToolFailed("One of --status or --replication must be specified with describe sub-command")
    elif options.human_readable:
        raise ToolFailed("The option --human-readable is only supported along with --replication")
    else:
        await _status(channel, options)


def run(arguments: list[str]) -> int:
    """Run ``kafka-metadata-quorum`` with these arguments and return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.bootstrap_server and not options.bootstrap_controller:
        parser.error("one of the arguments --bootstrap-server --bootstrap-controller is required")
    return run_tool(options, lambda client: _act(client, options))
