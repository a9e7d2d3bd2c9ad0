"""``ottla kafka-console-consumer``: the tool ``kafka-console-consumer.sh``.

Source: ``ConsoleConsumer``, ``ConsoleConsumerOptions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from ottla.cli.arguments import parse_integer
from ottla.cli.connection_settings import read_client_config
from ottla.cli.errors import CommandFailed
from ottla.cli.kafka_tools import message_formatter
from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    ToolFailed,
    ToolOptions,
    compile_regex,
    has,
    java_integer,
    java_long,
    key_values,
    run_tool,
)
from ottla.cli.records.group_member import GroupMember
from ottla.cli.records.partition_fetcher import PartitionFetcher, ReadRecord
from ottla.cli.terminal import write_bytes
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ErrorCode, ProtocolError

TEXT = "This tool helps to read data from Kafka topics and outputs it to standard output."
EARLIEST, LATEST = -2, -1
POLL_MS, COMMIT_INTERVAL_MS, METADATA_MAX_AGE_MS = 500, 5000, 300_000
RENAMED = (
    ("consumer-property", "command-property", "--consumer-property"),
    ("consumer.config", "command-config", "--consumer.config"),
)
TIMESTAMPS = {"earliest": EARLIEST, "latest": LATEST}


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-console-consumer", TEXT)
    out.connection()
    out.option("topic", "The topic to consume from.")
    out.option("include", "Regular expression specifying list of topics to include for consumption.")
    out.option("partition", "The partition to consume from, from its end unless --offset is specified.", java_integer)
    out.option("offset", "The offset to consume from, or earliest or latest.")
    out.option("command-property", "Consumer config property: key=value.", is_repeated=True)
    out.option("consumer-property", "Deprecated: --command-property.", is_repeated=True)
    out.option("consumer.config", "Deprecated: --command-config.")
    out.option("formatter", f"One of {', '.join(message_formatter.FORMATTERS)}.")
    out.option("formatter-property", "print.key, print.timestamp, key.separator, ...: key=value.", is_repeated=True)
    out.option("property", "Deprecated: --formatter-property.", is_repeated=True)
    out.option("formatter-config", "Config properties file to initialize the message formatter.")
    out.flag("from-beginning", "Start with the earliest record where the group has no offset.")
    out.option("max-messages", "The maximum number of records to consume before exiting.", java_integer)
    out.option("timeout-ms", "Exit if no record is available for the specified interval.", java_long)
    out.flag("skip-message-on-error", "Skip a record that cannot be formatted.")
    out.option("key-deserializer", "Deserializer of keys.")
    out.option("value-deserializer", "Deserializer of values.")
    out.flag("enable-systest-events", "Print shutdown_complete at the end.")
    out.option("isolation-level", "read_committed or read_uncommitted (the default).")
    out.option("group", "The consumer group id of the consumer; none by default.")
    return out


class ConsumerPlan(NamedTuple):
    """Checked arguments of a consumer.

    Attributes:
        group_id: id of the group to join; None to read partitions without a group.
        start: without a group and with ``--partition``: first offset, or -2 for the earliest and -1 for the latest.
        reset_timestamp: start where there is no valid offset, as a timestamp of ListOffsets: -2 earliest, -1 latest.
        settings: consumer properties of the file and the command line.
        formatter: formatter of records; None to print nothing.
    """

    group_id: str | None
    start: int
    reset_timestamp: int
    settings: dict[str, str]
    formatter: message_formatter.MessageFormatter | None


def _check_required(parser: ToolOptions, options: argparse.Namespace) -> None:
    parser.require_single(options, "topic", "include")
    if options.partition is not None:
        if not has(options, "topic"):
            parser.fail_with_usage("The topic is required when partition is specified.")
        if options.from_beginning and has(options, "offset"):
            parser.fail_with_usage("Options from-beginning and offset cannot be specified together.")
    elif has(options, "offset"):
        parser.fail_with_usage("The partition is required when offset is specified.")
    parser.require(options, "bootstrap-server")
    for old, new, shown in RENAMED:
        if has(options, old) and has(options, new):
            parser.fail_with_usage(f"Options {shown} and --{new} cannot be specified together.")
        if has(options, old):
            print(f"Option {shown} is deprecated and will be removed in a future version. Use --{new} instead.")
            setattr(options, new.replace("-", "_"), getattr(options, old.replace("-", "_")))


def _group_id(
    parser: ToolOptions, options: argparse.Namespace, file: Mapping[str, str], given: Mapping[str, str]
) -> str | None:
    ids = {x for x in (options.group, file.get("group.id"), given.get("group.id")) if x is not None}
    if len(ids) > 1:
        shown = ", ".join(f"'{x}'" for x in sorted(ids))
        parser.fail_with_usage(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via "
            f"'--consumer.config') do not match. Detected group ids: {shown}"
        )
    if ids and options.partition is not None:
        parser.fail_with_usage("Options group and partition cannot be specified together.")
    return next(iter(ids), None)


def _start(parser: ToolOptions, options: argparse.Namespace) -> int:
    if options.offset is None:
        return EARLIEST if options.from_beginning else LATEST
    if (known := TIMESTAMPS.get(options.offset.lower())) is not None:
        return known
    number = parse_integer(options.offset)
    if number is None or number < 0:
        parser.fail_with_usage(
            f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )
    return number


def _formatter(parser: ToolOptions, options: argparse.Namespace) -> message_formatter.MessageFormatter | None:
    """Return the formatter that the options select; None for ``NoOpMessageFormatter``, which prints nothing.

    For invalid options an error message is printed, and the tool exits with status 1.

    Raises:
        ToolFailed: a deserializer is not supported; CommandFailed: the file of ``--formatter-config`` cannot be read.
    """
    name = options.formatter or message_formatter.DEFAULT
    if name not in message_formatter.FORMATTERS:
        parser.fail_with_usage(name)
    if has(options, "property") and has(options, "formatter-property"):
        parser.fail_with_usage("Options --property and --formatter-property cannot be specified together.")
    if has(options, "property"):
        print(
            "Option --property is deprecated and will be removed in a future version. Use --formatter-property instead."
        )
        options.formatter_property = options.property
    properties = read_client_config(options.formatter_config)
    for key, value in (
        ("key.deserializer", options.key_deserializer),
        ("value.deserializer", options.value_deserializer),
    ):
        if value:
            properties[key] = value
    properties |= key_values(options.formatter_property)
    return message_formatter.MessageFormatter(properties) if name == message_formatter.DEFAULT else None


def _plan(parser: ToolOptions, options: argparse.Namespace) -> ConsumerPlan:
    """Return the checked arguments; print an error message and exit with status 1 if the options are invalid.

    The properties and the client id for the connection are stored in ``options``.
    """
    _check_required(parser, options)
    try:
        file, given = read_client_config(options.command_config), key_values(options.command_property)
        group_id = _group_id(parser, options, file, given)
        settings = file | given
        reset = settings.get("auto.offset.reset")
        if options.from_beginning and reset not in (None, "earliest"):
            parser.error(
                f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
                "please remove one option"
            )
        settings["isolation.level"] = options.isolation_level or settings.get("isolation.level", "read_uncommitted")
        reset_timestamp = TIMESTAMPS.get(reset or ("earliest" if options.from_beginning else "latest"), LATEST)
        start = _start(parser, options)
        formatter = _formatter(parser, options)
    except (CommandFailed, ToolFailed) as error:
        parser.error(str(error))
    if settings["isolation.level"] not in ("read_committed", "read_uncommitted"):
        parser.error(
            f"Invalid value {settings['isolation.level']} for configuration isolation.level: String must be one of: "
            "read_committed, read_uncommitted"
        )
    options.client_settings = given
    options.client_id = settings.get("client.id", "console-consumer")
    return ConsumerPlan(group_id, start, reset_timestamp, settings, formatter)


class ConsoleConsumer:
    """Consumer that prints records: as a member of a group, or of a partition or topics without a group.

    Attributes:
        count: number of records processed so far.
    """

    def __init__(self, client: ClusterClient, options: argparse.Namespace, plan: ConsumerPlan) -> None:
        self._client = client
        self._options = options
        self._plan = plan
        self._env = BlockingEnv()
        is_committed = plan.settings["isolation.level"] == "read_committed"
        self._fetcher = PartitionFetcher(client, plan.reset_timestamp, committed=is_committed)
        self._commits = plan.settings.get("enable.auto.commit", "true").lower() == "true"
        self._member: GroupMember | None = None
        self._consumed: dict[tuple[str, int], int] = {}
        self._next_commit_ms = self._env.monotonic_ms() + COMMIT_INTERVAL_MS
        self._next_refresh_ms = 0.0
        self.count = 0

    async def _topics(self) -> list[str]:
        if self._options.topic is not None:
            return [self._options.topic]
        is_chosen = compile_regex(self._options.include).fullmatch
        found = (await self._client.metadata(None)).topics
        return [topic.name or "" for topic in found if not topic.is_internal and is_chosen(topic.name or "")]

    async def _partitions(self) -> list[tuple[str, int]]:
        topics = await self._topics()
        return [(topic, number) for topic in topics for number in await self._client.partitions(topic, create=True)]

    async def _start(self) -> None:
        """Create the group member, which joins by `_refresh`; without a group find partitions and start offsets.

        Raises:
            ToolFailed: the topic does not have the partition of ``--partition``.
            ProtocolError: a topic does not exist, or a leader refused ListOffsets.
        """
        plan, options = self._plan, self._options
        if plan.group_id is not None:
            topics = await self._topics()
            if options.topic is not None:
                await self._client.partitions(options.topic, create=True)
            self._member = GroupMember(self._client, plan.group_id, topics)
            return
        there = await self._partitions()
        wanted = [at for at in there if options.partition is None or at[1] == options.partition]
        if options.partition is not None and not wanted:
            text = f"Topic {options.topic} does not have partition {options.partition}"
            raise ToolFailed(text)
        for at in wanted:
            if plan.start >= 0:
                self._fetcher.positions[at] = plan.start
            else:
                reset = plan.start if options.partition is not None else plan.reset_timestamp
                await self._fetcher.start(at, reset)
        self._next_refresh_ms = self._env.monotonic_ms() + METADATA_MAX_AGE_MS

    async def _refresh(self) -> None:
        """Send heartbeats and due commits of a group member; without a group look for new partitions every 5 minutes.

        After a rebalance only assigned partitions have positions; new ones begin at their committed offset, if any.

        Raises:
            ProtocolError: the coordinator or a leader refused a request.
            CommandFailed: no coordinator is available, or it refused OffsetFetch.
        """
        now_ms = self._env.monotonic_ms()
        if self._member is None:
            if self._options.partition is None and now_ms >= self._next_refresh_ms:
                self._next_refresh_ms = now_ms + METADATA_MAX_AGE_MS
                for at in await self._partitions():
                    if at not in self._fetcher.positions:
                        await self._fetcher.start(at, EARLIEST)
            return
        if self._commits and now_ms >= self._next_commit_ms:
            await self._commit()
        if await self._member.heartbeat():
            await self._commit()
            committed = await self._member.committed() if self._member.assigned else {}
            positions = self._fetcher.positions
            for at in [at for at in positions if at not in self._member.assigned]:
                del positions[at]
                self._consumed.pop(at, None)
            for at in self._member.assigned - positions.keys():
                if at in committed:
                    positions[at] = committed[at]
                else:
                    await self._fetcher.start(at, self._plan.reset_timestamp)

    async def _commit(self) -> None:
        self._next_commit_ms = self._env.monotonic_ms() + COMMIT_INTERVAL_MS
        if self._member is not None and self._commits:
            offsets, self._consumed = self._consumed, {}
            if not await self._member.commit(offsets):
                self._consumed = offsets | self._consumed

    def process(self, read: ReadRecord) -> None:
        """Count and print a record, and advance the offset to commit past it.

        Raises:
            ToolFailed: the record cannot be formatted, and ``--skip-message-on-error`` is not set; it counts, too, and
                its offset is committed.
        """
        self.count += 1
        self._consumed[read.topic, read.partition] = read.record.offset + 1
        if self._plan.formatter is None:
            return
        try:
            shown = self._plan.formatter.format(read.partition, read.record, has_append_time=read.has_append_time)
        except ToolFailed as error:
            if not self._options.skip_message_on_error:
                raise
            print(f"skipping {read.topic}-{read.partition} at {read.record.offset}: {error}", file=sys.stderr)
            return
        write_bytes(shown)

    async def run(self) -> None:
        """Process records until ``--max-messages`` are processed or none arrives within ``--timeout-ms``.

        Without these options, run until interrupted.

        Raises:
            ToolFailed: a record cannot be formatted, or the partition of ``--partition`` does not exist.
            ProtocolError: a topic does not exist, or the coordinator or a leader refused a request.
            CommandFailed: no coordinator is available, or it refused OffsetFetch.
            OSError: a leader or the coordinator cannot be reached.
        """
        options = self._options
        most = options.max_messages if options.max_messages is not None and options.max_messages >= 0 else None
        timeout_ms = options.timeout_ms if options.timeout_ms is not None and options.timeout_ms >= 0 else None
        pending: deque[ReadRecord] = deque()
        await self._start()
        since_ms = self._env.monotonic_ms()
        while most is None or self.count < most:
            if pending:
                self.process(pending.popleft())
                since_ms = self._env.monotonic_ms()
                continue
            await self._refresh()
            left_ms = POLL_MS if timeout_ms is None else since_ms + timeout_ms - self._env.monotonic_ms()
            if self._fetcher.positions:
                pending += await self._poll(max(1, min(POLL_MS, int(left_ms))))
            else:
                await self._env.sleep(0.02)
            if not pending and timeout_ms is not None and self._env.monotonic_ms() - since_ms > timeout_ms:
                return

    async def _poll(self, wait_ms: int) -> list[ReadRecord]:
        """Fetch records, waiting ``wait_ms`` at most; while a partition has no leader, pause 100 ms and return none.

        Raises:
            ProtocolError: a partition has an error that is not retriable; OSError: a leader cannot be reached.
        """
        try:
            return await self._fetcher.poll(wait_ms)
        except ProtocolError as error:
            if error.code is not ErrorCode.LEADER_NOT_AVAILABLE:
                raise
            self._client.invalidate_leaders()
            await self._env.sleep(0.1)
            return []

    async def close(self) -> None:
        """Commit the offsets after the processed records, unless auto-commit is off, and leave the group, if any.

        A commit is neither repeated nor an error if it fails with a retriable error, or because the member is not in
        the group any more or its epoch is stale or fenced.

        Raises:
            ProtocolError: the coordinator refused the commit for another reason; the member does not leave then.
            CommandFailed, OSError: no coordinator is available or reachable, for the commit or to leave.
        """
        if self._member is not None:
            await self._commit()
            await self._member.leave()


def run(arguments: list[str]) -> int:
    """Run ``kafka-console-consumer``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    plan = _plan(parser, options)

    async def consume(client: ClusterClient) -> None:
        consumer = ConsoleConsumer(client, options, plan)
        try:
            await consumer.run()
        finally:
            try:
                await consumer.close()
            finally:
                print(f"Processed a total of {consumer.count} messages", file=sys.stderr)
                if options.enable_systest_events:
                    print("shutdown_complete")

    return run_tool(options, consume, FailureFormat("", to_stderr=True))
