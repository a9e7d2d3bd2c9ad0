"""``ottla kafka-metadata-quorum``: the tool ``kafka-metadata-quorum.sh``, which describes and changes the KRaft quorum.

Source: ``MetadataQuorumCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ottla.broker.config.listener_config import ConfigException, parse_listener
from ottla.cli.arguments import integer
from ottla.cli.connection_settings import find_settings
from ottla.cli.kafka_tools.text_tables import print_table
from ottla.cli.kafka_tools.tool_options import (
    ToolFailed,
    VerbOptions,
    add_servers,
    admin_channel,
    java_integer,
    raise_for,
    run_tool,
)
from ottla.client.channel import Channel
from ottla.client.cluster_client import CONTROLLERS, ClusterClient
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.meta_properties import read_meta_properties
from ottla.runtime.blocking_env import BlockingEnv
from ottla.runtime.system_env import SystemEnv
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.messages import describe_quorum
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, Listener
from ottla.wire.messages.describe_cluster import DescribeClusterRequest
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

TEXT = "This tool describes kraft metadata quorum status."
TOPIC = "__cluster_metadata"
BROKERS = 1
TIMEOUT_MS = 30_000
NO_CONFIG = "You must supply the configuration file of the controller you are adding when using add-controller."
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
    text = "Add the controller of the properties file --command-config to the KRaft controller cluster."
    add = verbs.add_parser("add-controller", help=text)
    add.add_argument("--dry-run", action="store_true", help="Only print what would be done.")
    remove = verbs.add_parser("remove-controller", help="Remove a controller from the KRaft controller cluster.")
    remove.add_argument("--controller-id", "-i", type=integer(-(2**31)), required=True, help="Id of the controller.")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="Directory id of the controller.")
    remove.add_argument("--dry-run", action="store_true", help="Only print what would be done.")
    return out


async def _described(channel: Channel) -> tuple[Any, describe_quorum.DescribeQuorumResponse]:
    """Return the row of ``__cluster_metadata-0`` in a DescribeQuorum response, and the whole response.

    Raises:
        ProtocolError: the request was refused.
    """
    request = describe_quorum.DescribeQuorumRequest(
        [describe_quorum.DescribeQuorumRequestTopicData(TOPIC, [describe_quorum.DescribeQuorumRequestPartitionData(0)])]
    )
    answer = await channel.call(request)
    raise_for(answer.error_code, answer.error_message)
    row = answer.topics[0].partitions[0]
    raise_for(row.error_code, row.error_message)
    return row, answer


def _replica(state: Any, answer: describe_quorum.DescribeQuorumResponse) -> str:
    """Return the voter or observer ``state`` as JSON, without directory id or endpoints that ``answer`` lacks."""
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


def _controller_id(values: Mapping[str, str]) -> int:
    """Return ``node.id`` of a controller's properties.

    Raises:
        ToolFailed: it is missing, malformed or negative, or the properties are not those of a controller.
    """
    hint = "Is this a valid controller configuration file?"
    if "node.id" not in values:
        raise ToolFailed(f"node.id not found in configuration file. {hint}")
    try:
        number = java_integer(values["node.id"])
    except ValueError:
        raise ToolFailed(f'For input string: "{values["node.id"]}"') from None
    if number < 0:
        raise ToolFailed(f"node.id was negative in configuration file. {hint}")
    if "controller" not in values.get("process.roles", ""):
        raise ToolFailed(f"process.roles did not contain 'controller' in configuration file. {hint}")
    return number


def _directory_id(values: Mapping[str, str]) -> bytes:
    """Return the directory id in ``meta.properties`` of the metadata log directory that a controller's properties name.

    Raises:
        ToolFailed: no directory is named, or it is not formatted; CorruptFile: ``meta.properties`` is malformed.
    """
    path = values.get("metadata.log.dir", values.get("log.dirs", "").strip().split(",")[0])
    if not path:
        raise ToolFailed(
            "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller configuration file?"
        )
    identity = read_meta_properties(SystemEnv().disk, path)
    if identity is None:
        raise ToolFailed(f"Unable to read meta.properties from {path}")
    return identity.directory_id


def _endpoints(values: Mapping[str, str]) -> list[Listener]:
    """Return the controller listeners' endpoints in a controller's properties: advertised, else those of ``listeners``.

    Raises:
        ToolFailed: a listener is missing; ConfigException: an address is malformed.
    """
    if "controller.listener.names" not in values:
        raise ToolFailed("controller.listener.names was not found. Is this a valid controller configuration file?")
    texts = f"{values.get('listeners', '')},{values.get('advertised.listeners', '')}".split(",")
    known = {name.upper(): (host, port) for name, host, port in (parse_listener(x) for x in texts if x.strip())}
    out = []
    for name in values["controller.listener.names"].upper().split(","):
        if name not in known:
            raise ToolFailed(f"Cannot find information about controller listener name: {name}")
        host, port = known[name]
        out.append(Listener(name, host or "localhost", port))
    return out


async def _add(channel: Channel, options: argparse.Namespace) -> None:
    values = find_settings(options).values
    try:
        number, directory, ends = _controller_id(values), _directory_id(values), _endpoints(values)
    except (ConfigException, CorruptFile) as error:
        raise ToolFailed(str(error)) from None
    if not options.dry_run:
        answer = await channel.call(AddRaftVoterRequest(None, TIMEOUT_MS, number, directory, ends))
        raise_for(answer.error_code, answer.error_message)
    done = "DRY RUN of adding" if options.dry_run else "Added"
    shown = ", ".join(f"{at.name}://{_host(at.host)}:{at.port}" for at in ends)
    print(f"{done} controller {number} with directory id {uuid_to_string(directory)} and endpoints: {shown}")


async def _act(client: ClusterClient, options: argparse.Namespace) -> None:
    channel = await admin_channel(client, options)
    if options.command == "remove-controller":
        await _remove(channel, options)
    elif options.command == "add-controller":
        if options.command_config is None:
            raise ToolFailed(NO_CONFIG)
        await _add(channel, options)
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
    """Run ``kafka-metadata-quorum``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 1).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.bootstrap_server and not options.bootstrap_controller:
        parser.error("one of the arguments --bootstrap-server --bootstrap-controller is required")
    return run_tool(options, lambda client: _act(client, options))
