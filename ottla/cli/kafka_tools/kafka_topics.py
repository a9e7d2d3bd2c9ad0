"""``ottla kafka-topics``: the tool ``kafka-topics.sh``.

Source: ``TopicCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    ToolFailed,
    ToolOptions,
    compile_regex,
    has,
    java_integer,
    raise_for,
    run_tool,
)
from ottla.client.cluster_client import ClusterClient
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_topic_partitions,
    list_partition_reassignments,
)

TEXT = "This tool helps to create, delete, describe, or change a topic."
ACTIONS = ("create", "list", "alter", "describe", "delete")
FAILURES = FailureFormat("Error while executing topic command : ")
RESOURCE_TOPIC, SOURCE_DEFAULT, TIMEOUT_MS = 2, 5, 60_000
MAX_REPLICATION_FACTOR = 2**15 - 1
REPORTS = ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions")
COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-topics", TEXT)
    out.connection()
    out.flag("list", "List all available topics.")
    out.flag("create", "Create a new topic.")
    out.flag("delete", "Delete a topic.")
    out.flag("alter", "Alter the number of partitions and replica assignment.")
    out.flag("describe", "List details for the given topics.")
    out.option("topic", "The topic; a regular expression, except with --create.")
    out.option("topic-id", "The topic-id to describe.")
    out.option("config", "A topic configuration for the topic being created: name=value.", is_repeated=True)
    out.option("delete-config", "This option is no longer supported.", is_repeated=True)
    out.option("partitions", "The number of partitions for the topic being created or altered.", java_integer)
    out.option(
        "replication-factor", "The replication factor for each partition of the topic being created.", java_integer
    )
    out.option("replica-assignment", "Brokers of each partition: broker1:broker2,broker1:broker2.")
    out.flag("under-replicated-partitions", "With --describe: only under-replicated partitions.")
    out.flag("unavailable-partitions", "With --describe: only partitions whose leader is not available.")
    out.flag("under-min-isr-partitions", "With --describe: only partitions with fewer in-sync replicas than required.")
    out.flag("at-min-isr-partitions", "With --describe: only partitions with as many in-sync replicas as required.")
    out.flag("topics-with-overrides", "With --describe: only topics that have overridden configs.")
    out.flag("if-exists", "Alter, delete or describe only if the topic exists.")
    out.flag("if-not-exists", "With --create: no error if the topic already exists.")
    out.flag("exclude-internal", "Exclude internal topics when listing or describing topics.")
    out.option("partition-size-limit-per-response", "Partitions in one DescribeTopicPartitions response.", java_integer)
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options; print Kafka's error message and exit with status 1 if it is invalid."""
    if sum(has(options, name) for name in ACTIONS) != 1:
        parser.fail_with_usage(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    if options.delete_config:
        print("delete-config option is no longer supported and deprecated since version 4.0.", file=sys.stderr)
    if not options.bootstrap_server:
        parser.error("--bootstrap-server must be specified")
    if options.describe and options.if_exists and not (options.topic or options.topic_id):
        parser.fail_with_usage("--topic or --topic-id is required to describe a topic")
    if not options.list and not options.describe:
        parser.require(options, "topic")
    if options.alter:
        if options.config:
            parser.fail_with_usage(
                'Option combination "[bootstrap-server, config]" can\'t be used with option "[alter]"'
            )
        parser.require(options, "partitions")
    for name, actions in (
        ("config", ("alter", "create")),
        ("partitions", ("alter", "create")),
        ("replication-factor", ("create",)),
        ("replica-assignment", ("alter", "create")),
        *((report, ("describe",)) for report in REPORTS),
        ("topics-with-overrides", ("describe",)),
        ("if-exists", ("alter", "delete", "describe")),
        ("if-not-exists", ("create",)),
        ("exclude-internal", ("list", "describe")),
    ):
        parser.exclude(options, name, *(action for action in ACTIONS if action not in actions))
    if options.create:
        parser.exclude(options, "replica-assignment", "partitions", "replication-factor")
    for report in REPORTS:
        parser.exclude(options, report, "topics-with-overrides")


def _replica_assignment(text: str | None) -> list[list[int]]:
    """Return the broker ids of each partition in ``--replica-assignment`` (``1:2,2:3``); empty without the option.

    Raises:
        ToolFailed: a broker is repeated or not a number, or the replication factors of partitions differ.
    """
    out: list[list[int]] = []
    for number, part in enumerate(text.split(",") if text else ()):
        try:
            brokers = [int(broker) for broker in part.split(":")]
        except ValueError as error:
            raise ToolFailed(str(error)) from None
        repeated = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if repeated:
            shown = ",".join(map(str, repeated))
            raise ToolFailed(f"Partition replica lists may not contain duplicate entries: {shown}")
        out.append(brokers)
        if len(brokers) != len(out[0]):
            raise ToolFailed(f"Partition {number} has different replication factor: {brokers}")
    return out


def _configs(items: Sequence[str] | None) -> list[create_topics.CreatableTopicConfig]:
    pairs = [re.split(r"\s*=\s*", item) for item in items or ()]
    if any(len(pair) != 2 for pair in pairs):
        raise ToolFailed(
            'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
        )
    merged = {key.strip(): value.strip() for key, value in pairs}
    return [create_topics.CreatableTopicConfig(key, value) for key, value in merged.items()]


async def _create(client: ClusterClient, options: argparse.Namespace) -> None:
    configs, assignment = _configs(options.config), _replica_assignment(options.replica_assignment)
    if "." in options.topic or "_" in options.topic:
        print(COLLISION_WARNING)
    factor, count = options.replication_factor, options.partitions
    if factor is not None and not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise ToolFailed(f"The replication factor must be between 1 and {MAX_REPLICATION_FACTOR} inclusive")
    if count is not None and count < 1:
        raise ToolFailed("The partitions must be greater than 0")
    rows = [create_topics.CreatableReplicaAssignment(number, brokers) for number, brokers in enumerate(assignment)]
    wanted = create_topics.CreatableTopic(options.topic, count or -1, factor or -1, rows, configs)
    answer = (await client.call(create_topics.CreateTopicsRequest([wanted], TIMEOUT_MS))).topics[0]
    if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
        return
    raise_for(answer.error_code, answer.error_message)
    print(f"Created topic {options.topic}.")


async def _topics(client: ClusterClient, options: argparse.Namespace) -> list[Any]:
    """Return the Metadata rows of the topics that the options select, sorted by name.

    ``--topic-id`` counts only with ``--describe``, and takes precedence over ``--topic``. Without both, all are
    selected. With ``--exclude-internal`` internal topics are left out in each case.

    Raises:
        ToolFailed: the regular expression is invalid, or no topic matches a ``--topic`` or ``--topic-id`` and neither
            ``--if-exists`` nor ``--list`` is set.
        ValueError: ``--topic-id`` is not the id of a topic in Kafka's base64 form.
    """
    pattern = re.sub(r"^[\"']+|[\"']+$", "", (options.topic or "").strip().replace(",", "|").replace(" ", ""))
    is_chosen = compile_regex(pattern).fullmatch
    found = sorted((await client.metadata(None)).topics, key=lambda topic: topic.name or "")
    shown = [topic for topic in found if not (topic.is_internal and options.exclude_internal)]
    wanted_id = uuid_from_string(options.topic_id) if options.describe and options.topic_id else ZERO_UUID
    if wanted_id != ZERO_UUID:
        shown = [topic for topic in shown if topic.topic_id == wanted_id]
        if not shown and not options.if_exists:
            raise ToolFailed(f"TopicId '{options.topic_id}' does not exist as expected")
        return shown
    if options.topic is not None:
        shown = [topic for topic in shown if is_chosen(topic.name or "")]
    if options.topic and not shown and not options.if_exists and not options.list:
        raise ToolFailed(f"Topic '{options.topic}' does not exist as expected")
    return shown


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    print("\n".join(topic.name for topic in await _topics(client, options)))


async def _alter(client: ClusterClient, options: argparse.Namespace) -> None:
    assignment = _replica_assignment(options.replica_assignment)
    wanted = []
    for topic in await _topics(client, options):
        added = [
            create_partitions.CreatePartitionsAssignment(brokers) for brokers in assignment[len(topic.partitions) :]
        ]
        wanted.append(
            create_partitions.CreatePartitionsTopic(
                topic.name, options.partitions, added if options.replica_assignment else None
            )
        )
    if wanted:
        for row in (await client.call(create_partitions.CreatePartitionsRequest(wanted, TIMEOUT_MS))).results:
            raise_for(row.error_code, row.error_message)


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    names = [topic.name for topic in await _topics(client, options)]
    if not names:
        return
    states = [delete_topics.DeleteTopicState(name) for name in names]
    for row in (await client.call(delete_topics.DeleteTopicsRequest(states, names, TIMEOUT_MS))).responses:
        raise_for(row.error_code, row.error_message)


class _Partition(NamedTuple):
    """Partition to print: its DescribeTopicPartitions row, its ongoing reassignment (None without one), and min ISR."""

    topic: str
    row: Any
    reassignment: Any
    min_isr: int

    @property
    def replication_factor(self) -> int:
        """Number of replicas, without those that an ongoing reassignment adds."""
        moved = self.reassignment
        if moved is None or not set(self.row.replica_nodes) & {*moved.adding_replicas, *moved.removing_replicas}:
            return len(self.row.replica_nodes)
        return len(moved.replicas) - len(moved.adding_replicas)

    def is_reported(self, options: argparse.Namespace, live: set[int]) -> bool:
        """Return True if the partition matches one of the requested reports, such as ``--under-replicated-partitions``.

        ``live``: ids of the live brokers.
        """
        in_sync, leader = len(self.row.isr_nodes), self.row.leader_id
        return bool(
            (options.under_replicated_partitions and self.replication_factor > in_sync)
            or (options.unavailable_partitions and leader not in live)
            or (options.under_min_isr_partitions and (leader < 0 or in_sync < self.min_isr))
            or (options.at_min_isr_partitions and in_sync == self.min_isr)
        )

    def text(self) -> str:
        """Return the output line of the partition."""

        def ids(numbers: Sequence[int] | None) -> str:
            return "N/A" if numbers is None else ",".join(map(str, numbers))

        row, moved = self.row, self.reassignment
        cells = [
            f"\tTopic: {self.topic}",
            f"Partition: {row.partition_index}",
            f"Leader: {'none' if row.leader_id < 0 else row.leader_id}",
            f"Replicas: {ids(row.replica_nodes)}",
            f"Isr: {ids(row.isr_nodes)}",
        ]
        if moved is not None:
            cells += [f"Adding Replicas: {ids(moved.adding_replicas)}"]
            cells += [f"Removing Replicas: {ids(moved.removing_replicas)}"]
        cells += [f"Elr: {ids(row.eligible_leader_replicas)}", f"LastKnownElr: {ids(row.last_known_elr)}"]
        return "\t".join(cells)


async def _partitions(client: ClusterClient, names: list[str], limit: int) -> dict[str, list[Any]]:
    """Return the partition rows (DescribeTopicPartitions) of each topic by name, from as many requests as needed.

    ``limit``: maximum number of partitions in a response.

    Raises:
        ProtocolError: a topic has an error.
    """
    out: dict[str, list[Any]] = {name: [] for name in names}
    cursor: describe_topic_partitions.DescribeTopicPartitionsRequestCursor | None = None
    topics = [describe_topic_partitions.TopicRequest(name) for name in names]
    while topics:
        answer = await client.call(describe_topic_partitions.DescribeTopicPartitionsRequest(topics, limit, cursor))
        for topic in answer.topics:
            raise_for(topic.error_code, None)
            out[topic.name] += topic.partitions
        if answer.next_cursor is None:
            break
        cursor = describe_topic_partitions.DescribeTopicPartitionsRequestCursor(
            answer.next_cursor.topic_name, answer.next_cursor.partition_index
        )
    return out


async def _reassignments(client: ClusterClient) -> dict[tuple[str, int], Any]:
    """Return the ongoing reassignment of each partition; empty if ListPartitionReassignments fails."""
    answer = await client.call(list_partition_reassignments.ListPartitionReassignmentsRequest(TIMEOUT_MS))
    if answer.error_code:
        return {}
    return {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    topics = await _topics(client, options)
    names = [topic.name for topic in topics]
    rows = await _partitions(client, names, options.partition_size_limit_per_response or 2000)
    wanted = [describe_configs.DescribeConfigsResource(RESOURCE_TOPIC, name) for name in names]
    configs = (await client.call(describe_configs.DescribeConfigsRequest(wanted))).results if wanted else []
    live = {broker.node_id for broker in (await client.metadata([])).brokers}
    moved = await _reassignments(client) if names else {}
    is_whole = not any(has(options, report) for report in REPORTS)
    for topic, config in zip(topics, configs, strict=True):
        raise_for(config.error_code, config.error_message)
        changed = [entry for entry in config.configs if entry.config_source != SOURCE_DEFAULT]
        min_isr = next((int(entry.value) for entry in config.configs if entry.name == "min.insync.replicas"), 1)
        partitions = [
            _Partition(topic.name, row, moved.get((topic.name, row.partition_index)), min_isr)
            for row in sorted(rows[topic.name], key=lambda row: row.partition_index)
        ]
        if is_whole and (changed or not options.topics_with_overrides):
            settings = ",".join(f"{entry.name}={'null' if entry.value is None else entry.value}" for entry in changed)
            cells = [f"Topic: {topic.name}", f"TopicId: {uuid_to_string(topic.topic_id)}"]
            cells += [f"PartitionCount: {len(partitions)}", f"ReplicationFactor: {partitions[0].replication_factor}"]
            print("\t".join([*cells, f"Configs: {settings}"]))
        if not options.topics_with_overrides:
            for partition in partitions:
                if is_whole or partition.is_reported(options, live):
                    print(partition.text())


def run(arguments: list[str]) -> int:
    """Run ``kafka-topics``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    work = {"create": _create, "list": _list, "alter": _alter, "describe": _describe, "delete": _delete}
    chosen = next(work[name] for name in ACTIONS if has(options, name))

    async def act(client: ClusterClient) -> None:
        await chosen(client, options)

    return run_tool(options, act, FAILURES)
