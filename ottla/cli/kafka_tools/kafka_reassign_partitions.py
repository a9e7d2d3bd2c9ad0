"""``ottla kafka-reassign-partitions``: the tool ``kafka-reassign-partitions.sh``.

Source: ``ReassignPartitionsCommand``, ``ReassignPartitionsCommandOptions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ottla.cli.kafka_tools.reassignment_files import (
    PartitionReplica,
    assignment_json,
    check_targets,
    numbers,
    parse_brokers,
    partition_text,
    read_reassignments,
    read_topics,
)
from ottla.cli.kafka_tools.reassignment_requests import (
    alter_reassignments,
    clear_throttles,
    current_log_dirs,
    node_ids,
    ongoing_reassignments,
    replicas_of,
    set_throttles,
    topics_by_name,
)
from ottla.cli.kafka_tools.replica_log_dirs import ReplicaLogDirs, alter_log_dirs, describe_log_dirs
from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    TerseFailure,
    ToolFailed,
    ToolOptions,
    has,
    java_long,
    raise_for,
    run_tool,
)
from ottla.client.cluster_client import ClusterClient
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.partitions.reassignment_plan import PlannedPartition
from ottla.controller.partitions.replica_placer import StripedReplicaPlacer
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import metadata
from ottla.wire.messages.metadata_records import RegisterBrokerRecord

TEXT = "This tool helps to move topic partitions between replicas."
FAILURES = FailureFormat(has_class=True)
ACTIONS = ("generate", "execute", "verify", "cancel", "list")
REQUIRED = {
    "verify": ("reassignment-json-file",),
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
PERMITTED = {
    "verify": ("bootstrap-server", "preserve-throttles"),
    "generate": ("bootstrap-server", "disable-rack-aware"),
    "execute": (
        *("bootstrap-server", "additional", "throttle", "replica-alter-log-dirs-throttle", "timeout"),
        "disallow-replication-factor-change",
    ),
    "cancel": ("bootstrap-server", "bootstrap-controller", "preserve-throttles", "timeout"),
    "list": ("bootstrap-server", "bootstrap-controller"),
}
OTHERS = (
    *("bootstrap-server", "bootstrap-controller", "reassignment-json-file", "topics-to-move-json-file", "broker-list"),
    *("disable-rack-aware", "throttle", "replica-alter-log-dirs-throttle", "timeout", "additional"),
    *("preserve-throttles", "disallow-replication-factor-change"),
)
DIRS_TIMEOUT_MS = 10_000
ONGOING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
MIXED_RACKS = (
    "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica assignment "
    "without rack information."
)


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-reassign-partitions", TEXT)
    out.connection("", has_controller=True)
    out.flag("verify", "Verify if the reassignment completed; remove its throttle then.")
    out.flag("generate", "Generate a candidate partition reassignment configuration.")
    out.flag("execute", "Start the reassignment of the --reassignment-json-file option.")
    out.flag("cancel", "Cancel an active reassignment.")
    out.flag("list", "List all active partition reassignments.")
    text = (
        '{"partitions": [{"topic": "foo", "partition": 1, "replicas": [1,2], "log_dirs": ["any", "/d"]}], "version": 1}'
    )
    out.option("reassignment-json-file", f"File with partitions and their replicas: {text}")
    text = '{"topics": [{"topic": "foo"}], "version": 1}'
    out.option("topics-to-move-json-file", f"File with topics to generate a reassignment for: {text}")
    out.option("broker-list", "With --generate: brokers that get the partitions: 0,1,2.")
    out.flag("disable-rack-aware", "Disable rack aware replica assignment.")
    out.option("throttle", "With --execute: limit between brokers in bytes/sec.", java_long)
    text = "With --execute: limit between log directories of a broker in bytes/sec."
    out.option("replica-alter-log-dirs-throttle", text, java_long)
    text = f"Maximum time in ms to wait for moves of log directories to begin ({DIRS_TIMEOUT_MS})."
    out.option("timeout", text, java_long)
    out.flag("additional", "Execute this reassignment in addition to ongoing ones.")
    out.flag("preserve-throttles", "Do not modify broker or topic throttles.")
    out.flag("disallow-replication-factor-change", "Reject a reassignment with another number of replicas.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> str:
    """Check the combination of options, and return the name of the action, such as ``execute``.

    If it is invalid, Kafka's error message is printed and the tool exits with status 1.
    """
    actions = [name for name in ACTIONS if has(options, name)]
    if len(actions) != 1:
        shown = ", ".join(f"--{name}" for name in ACTIONS)
        parser.fail_with_usage(f"Command must include exactly one action: {shown}")
    action = actions[0]
    if has(options, "bootstrap-server") and has(options, "bootstrap-controller"):
        parser.fail_with_usage("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not has(options, "bootstrap-server") and not has(options, "bootstrap-controller"):
        parser.fail_with_usage("Please specify either --bootstrap-server or --bootstrap-controller")
    parser.require(options, *REQUIRED[action])
    for name in OTHERS:
        if has(options, name) and name not in (*REQUIRED[action], *PERMITTED[action]):
            parser.fail_with_usage(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    ongoing = await ongoing_reassignments(client, options)
    print("Current partition reassignments:" if ongoing else "No partition reassignments found.")
    for partition, row in sorted(ongoing.items()):
        adding = f" adding: {numbers(row.adding_replicas)}." if row.adding_replicas else ""
        removing = f" removing: {numbers(row.removing_replicas)}." if row.removing_replicas else ""
        print(f"{partition_text(partition)}: replicas: {numbers(row.replicas)}.{adding}{removing}")


async def _generate(client: ClusterClient, options: argparse.Namespace) -> None:
    wanted = parse_brokers(options.broker_list)
    topics = await topics_by_name(client, read_topics(options.topics_to_move_json_file))
    current = replicas_of(topics)
    log_dirs = await current_log_dirs(client, current)
    is_aware = not options.disable_rack_aware
    brokers = [broker for broker in (await client.metadata([])).brokers if broker.node_id in wanted]
    if is_aware and 0 < sum(broker.rack is None for broker in brokers) < len(brokers):
        raise ToolFailed(MIXED_RACKS)
    records = {
        broker.node_id: RegisterBrokerRecord(
            broker.node_id, rack=broker.rack if is_aware else None, fenced=False, log_dirs=[bytes(16)]
        )
        for broker in brokers
    }
    proposed: dict[PlannedPartition, list[int]] = {}
    for name, topic in sorted(topics.items()):
        try:
            placer = StripedReplicaPlacer(
                MetadataImage(brokers=records), len(topic.partitions[0].replica_nodes), BlockingEnv().random
            )
        except ProtocolError as error:
            raise ToolFailed((error.message or "").partition(": ")[2]) from None
        proposed.update({(name, number): placer.place_next() for number in range(len(topic.partitions))})
    print(f"Current partition replica assignment\n{assignment_json(current, log_dirs)}\n")
    print(f"Proposed partition reassignment configuration\n{assignment_json(proposed, {})}")


async def _execute(client: ClusterClient, options: argparse.Namespace) -> None:
    content = read_reassignments(options.reassignment_json_file)
    check_targets(content.partitions)
    targets: dict[PlannedPartition, list[int] | None] = dict(content.partitions)
    ongoing = await ongoing_reassignments(client, options)
    if ongoing and not options.additional:
        raise TerseFailure(ONGOING)
    live = await node_ids(client, options)
    if unknown := sorted({i for _, ids in content.partitions for i in ids} - live):
        raise ToolFailed(f"Unknown broker id {unknown[0]}")
    current = replicas_of(await topics_by_name(client, (topic for topic, _ in targets)))
    if missing := sorted(set(targets) - set(current)):
        text = f"Unable to find partition: {', '.join(map(partition_text, missing))}"
        raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
    current = {partition: current[partition] for partition in targets}
    print(
        f"Current partition replica assignment\n\n{assignment_json(current, await current_log_dirs(client, current))}\n"
    )
    print("Save this to use as the --reassignment-json-file option during rollback")
    await set_throttles(client, options, ongoing, current, content.partitions, content.log_dirs)
    errors = await alter_reassignments(client, options, targets)
    if errors:
        lines = "".join(f"\n{partition_text(at)}: {text}" for at, text in sorted(errors.items()))
        raise TerseFailure(f"Error reassigning partition(s):{lines}")
    shown = ",".join(map(partition_text, sorted(targets)))
    print(f"Successfully started partition reassignment{'s' if len(targets) != 1 else ''} for {shown}")
    await _move_dirs(client, options, content.log_dirs)


async def _move_dirs(
    client: ClusterClient, options: argparse.Namespace, log_dirs: Mapping[PartitionReplica, str]
) -> None:
    """Start to move replicas to log directories, and print those that have started.

    Replicas that are not on their broker yet are tried again every 100 ms until ``--timeout`` ms (default 10 s).

    Raises:
        TerseFailure: the timeout passed; ToolFailed: another error of a replica.
    """
    env = BlockingEnv()
    deadline_ms = env.monotonic_ms() + (DIRS_TIMEOUT_MS if options.timeout is None else options.timeout)
    pending = dict(log_dirs)
    while pending:
        for replica in await alter_log_dirs(client, pending):
            at = f"{replica.topic}-{replica.partition}"
            path = pending.pop(replica)
            print(f"Successfully started moving log directory to {path} for replica {at} with broker {replica.broker} ")
        if pending and env.monotonic_ms() >= deadline_ms:
            plural, shown = "s" if len(pending) != 1 else "", ",".join(map(str, sorted(pending)))
            raise TerseFailure(f"Timed out before log directory move{plural} could be started for: {shown}")
        if pending:
            await env.sleep(0.1)


def replica_text(replica: PartitionReplica, now: ReplicaLogDirs, target: str) -> str:
    """Return the output of ``--verify`` for a replica with the log directories ``now``; ``target``: the wanted one."""
    at = f"Partition {replica.topic}-{replica.partition}"
    if now.current is None:
        return (
            f"{at} is not found in any live log dir on broker {replica.broker}. "
            "There is likely an offline log directory on the broker."
        )
    if now.future is not None and now.future != target:
        return f"{at} on broker {replica.broker} is being moved to log dir {now.future} instead of {target}."
    if now.future is not None:
        return f"Reassignment of replica {replica} is still in progress."
    if now.current != target:
        return f"{at} on broker {replica.broker} is not being moved from log dir {now.current} to {target}."
    return f"Reassignment of replica {replica} completed successfully."


async def _verify(client: ClusterClient, options: argparse.Namespace) -> None:
    content = read_reassignments(options.reassignment_json_file)
    await node_ids(client, options)
    ongoing = await ongoing_reassignments(client, options)
    names = sorted({at[0] for at, _ in content.partitions if at not in ongoing})
    answer = (await client.metadata(names)).topics if names else []
    there = {topic.name or "": topic for topic in answer}
    lines = {}
    for at, target in content.partitions:
        current = [] if at in ongoing else _current_replicas(there[at[0]], at[1])
        done = f"Reassignment of partition {partition_text(at)} is completed."
        if at in ongoing:
            lines[at] = f"Reassignment of partition {partition_text(at)} is still in progress."
        elif current == target:
            lines[at] = done
        else:
            lines[at] = (
                f"There is no active reassignment of partition {partition_text(at)}, "
                f"but replica set is {numbers(current)} rather than {numbers(target)}."
            )
    print("\n".join(["Status of partition reassignment:", *(lines[at] for at in sorted(lines))]))
    found = await describe_log_dirs(client, content.log_dirs.keys())
    print("\n".join(replica_text(x, dirs, content.log_dirs[x]) for x, dirs in sorted(found.items())))
    is_moving = any(dirs.future is not None or dirs.current is None for dirs in found.values())
    if not ongoing and not is_moving and not options.preserve_throttles:
        await clear_throttles(client, options, content.partitions)


def _current_replicas(topic: metadata.MetadataResponseTopic, number: int) -> list[int]:
    """Return the replicas of a partition; empty if the topic or partition does not exist.

    Raises:
        ProtocolError: the topic has another error, such as TOPIC_AUTHORIZATION_FAILED.
    """
    if topic.error_code not in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        raise_for(topic.error_code, None)
    return next((list(row.replica_nodes) for row in topic.partitions if row.partition_index == number), [])


async def _cancel(client: ClusterClient, options: argparse.Namespace) -> None:
    content = read_reassignments(options.reassignment_json_file)
    await node_ids(client, options)
    found = await ongoing_reassignments(client, options, {at for at, _ in content.partitions})
    active = sorted(at for at, row in found.items() if row.adding_replicas or row.removing_replicas)
    plural = "s" if len(active) != 1 else ""
    if active:
        errors = await alter_reassignments(client, options, dict.fromkeys(active))
        if errors:
            lines = "".join(f"\n{partition_text(at)}: {text}" for at, text in sorted(errors.items()))
            plural = "s" if len(errors) != 1 else ""
            raise TerseFailure(f"Error cancelling partition reassignment{plural} for:{lines}")
        shown = ",".join(map(partition_text, active))
        print(f"Successfully cancelled partition reassignment{plural} for: {shown}")
    else:
        print("None of the specified partition reassignments are active.")
    moving = {
        replica: dirs.current
        for replica, dirs in (await describe_log_dirs(client, content.log_dirs.keys())).items()
        if dirs.current is not None and dirs.future is not None
    }
    if moving:
        await _move_dirs(client, options, moving)
    else:
        print("None of the specified partition moves are active.", end="")
    if not options.preserve_throttles:
        await clear_throttles(client, options, content.partitions)


def run(arguments: list[str]) -> int:
    """Run ``kafka-reassign-partitions``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    action = _check(parser, options)
    work = {"list": _list, "generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel}[action]
    return run_tool(options, lambda client: work(client, options), FAILURES)
