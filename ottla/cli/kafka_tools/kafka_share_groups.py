"""``ottla kafka-share-groups``: the tool ``kafka-share-groups.sh``.

Source: ``ShareGroupCommand``, ``ShareGroupCommandOptions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from ottla.cli.common import connect_to_coordinator
from ottla.cli.group_admin import description
from ottla.cli.group_admin.offsets import group_by_topic
from ottla.cli.group_admin.share_offsets import described_share_offsets, start_offsets
from ottla.cli.kafka_tools.consumer_group_offsets import OffsetReset, Offsets
from ottla.cli.kafka_tools.java_errors import java_text, message_text
from ottla.cli.kafka_tools.text_tables import widest
from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    ToolFailed,
    ToolOptions,
    has,
    java_long,
    run_tool,
)
from ottla.cli.kafka_tools.typed_groups import (
    check_available,
    check_describe,
    check_states,
    chosen_groups,
    delete_groups,
    print_cells,
    print_deletion,
    print_groups,
)
from ottla.client.cluster_client import ClusterClient
from ottla.env.hosts import format_address
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import alter_share_group_offsets, delete_share_group_offsets

TEXT = "This tool helps to list, describe, reset and delete share groups."
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
TARGETS = ("to-datetime", "to-earliest", "to-latest")
STATES = ("Dead", "Empty", "Stable")
FAILURES = FailureFormat("\nError: Executing share group command failed due to ", has_class=True, status=0)
"""A failed action is printed, and the exit status stays 0."""
GROUP_CODES = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
)
TOPIC_CODES = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
MISSING = "-"


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-share-groups", TEXT)
    out.connection()
    out.option("group", "The share group; may be repeated.", is_repeated=True)
    out.option("topic", "A topic, or topic:0,1 for some of its partitions; may be repeated.", is_repeated=True)
    out.flag("all-topics", "With --reset-offsets: all topics of the share group.")
    out.flag("all-groups", "Apply to all share groups.")
    out.flag("list", "List all share groups.")
    out.flag("describe", "Describe share groups, members and offset information.")
    out.flag("delete", "Delete share groups.")
    out.flag("reset-offsets", "Reset offsets of a share group without members.")
    out.flag("delete-offsets", "Delete offsets of topics in a share group.")
    out.option("timeout", "Accepted for compatibility; requests wait up to 30 s.", java_long)
    out.flag("dry-run", "With --reset-offsets: only show the new offsets.")
    out.flag("execute", "With --reset-offsets: set the new offsets.")
    out.option("to-datetime", "Reset offsets to the offset of a time: YYYY-MM-DDThh:mm:ss.sss.")
    out.flag("to-earliest", "Reset offsets to the earliest offset.")
    out.flag("to-latest", "Reset offsets to the latest offset.")
    out.flag("members", "With --describe: members of the group.")
    out.flag("offsets", "With --describe: partitions with their start offsets and lag (the default).")
    out.flag("verbose", "With --describe: more columns.")
    out.optional_value("state", "With --describe: state; with --list: states of groups, or groups in them.")
    absent = dict.fromkeys(("to_offset", "shift_by", "by_duration", "from_file"))
    out.set_defaults(to_current=False, export=False, **absent)
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options; print Kafka's error message and exit with status 1 if it is invalid."""
    check_available(parser, options)
    parser.require(options, "bootstrap-server")
    has_scope = has(options, "group") or has(options, "all-groups")
    check_describe(parser, options)
    if options.delete:
        if not has_scope:
            parser.fail_with_usage("Option [delete] takes the options [group] or [all-groups]")
        if has(options, "group") and has(options, "all-groups"):
            parser.fail_with_usage("Option [delete] takes either [group] or [all-groups], not both.")
        if has(options, "topic"):
            parser.fail_with_usage("Option [delete] does not take the option: [topic]")
    if options.delete_offsets and not (has(options, "group") and has(options, "topic")):
        parser.fail_with_usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.reset_offsets:
        _check_reset(parser, options)
    parser.exclude(options, "group", "all-groups")
    parser.exclude(options, "group", "list")
    parser.exclude(options, "topic", "list", "describe")
    if sum(has(options, name) for name in ACTIONS) != 1:
        shown = ", ".join(f"--{name}" for name in ACTIONS)
        parser.fail_with_usage(f"Command must include exactly one action: {shown}.")
    check_states(parser, options.state, STATES)


def _check_reset(parser: ToolOptions, options: argparse.Namespace) -> None:
    subject = "Option [reset-offsets]"
    if options.dry_run and options.execute:
        parser.fail_with_usage(f"{subject} only accepts one of [execute] and [dry-run]")
    if not options.dry_run and not options.execute:
        parser.fail_with_usage(f"{subject} takes the option: [execute] or [dry-run]")
    if not has(options, "group"):
        parser.fail_with_usage(f"{subject} takes the option: [group]")
    if not has(options, "topic") and not options.all_topics:
        parser.fail_with_usage(f"{subject} takes one of these options: [all-topics], [topic]")
    if not any(has(options, name) for name in TARGETS):
        shown = ", ".join(f"[{name}]" for name in TARGETS)
        parser.fail_with_usage(f"{subject} takes one of these options: {shown}")
    for name in TARGETS:
        parser.exclude(options, name, *(other for other in TARGETS if other != name))


# ---------------------------------------------------------------------- list, describe


def _warn_empty(seen: description.GroupDescription) -> None:
    if seen.state == "Dead":
        print(f"\nError: Share group '{seen.id}' does not exist.")
    elif seen.state == "Empty":
        print(f"\nShare group '{seen.id}' has no active members.", file=sys.stderr)


async def _describe_offsets(seen: description.GroupDescription, *, verbose: bool) -> None:
    rows = []
    for topic in sorted(await described_share_offsets(seen), key=lambda topic: topic.topic_name):
        for row in sorted(topic.partitions, key=lambda row: row.partition_index):
            known = row.start_offset >= 0
            epoch = [row.leader_epoch if known and row.leader_epoch >= 0 else MISSING] * verbose
            start, lag = row.start_offset if known else MISSING, row.lag if known and row.lag >= 0 else MISSING
            rows.append([seen.id, topic.topic_name, row.partition_index, *epoch, start, lag])
    if not rows:
        print(f"\nShare group '{seen.id}' has no offset information.")
        return
    heads = ["GROUP", "TOPIC", "PARTITION", *["LEADER-EPOCH"] * verbose, "START-OFFSET", "LAG"]
    widths = [widest(15, [seen.id]), widest(15, [row[1] for row in rows]), 10, *[13] * verbose, 13, 0]
    print_cells(widths, [heads, *rows])


async def _describe_state(client: ClusterClient, seen: description.GroupDescription, *, verbose: bool) -> None:
    _warn_empty(seen)
    at = next(broker for broker in (await client.metadata([])).brokers if broker.node_id == seen.node)
    coordinator = f"{format_address(at.host, at.port)}  ({at.node_id})"
    epochs = [seen.response.group_epoch, seen.response.assignment_epoch] * verbose
    heads = ["GROUP", "COORDINATOR (ID)", "STATE", *["GROUP-EPOCH", "ASSIGNMENT-EPOCH"] * verbose, "#MEMBERS"]
    widths = [widest(15, [seen.id]), widest(25, [coordinator]), 15, *[12, 17] * verbose, 0]
    print_cells(widths, [heads, [seen.id, coordinator, seen.state, *epochs, len(seen.response.members)]])


def _describe_members(seen: description.GroupDescription, *, verbose: bool) -> None:
    _warn_empty(seen)
    members = description.describe_members(seen)
    if not members:
        return
    rows = []
    for member in members:
        assigned = {topic: numbers for topic, numbers in member["assignment"].items() if numbers}
        shown = sorted(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in assigned.items())
        cells = [seen.id, member["member"], member["host"], member["client"], sum(map(len, assigned.values()))]
        rows.append([*cells, *[member["epoch"]] * verbose, ";".join(shown)])
    heads = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *["MEMBER-EPOCH"] * verbose, "ASSIGNMENT"]
    widths = [*(widest(15, [row[i] for row in rows]) for i in range(4)), 12, *[13] * verbose, 0]
    print_cells(widths, [heads, *rows])


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    names = sorted(await chosen_groups(client, options, description.SHARE))
    for seen in [await description.describe_group_of_type(client, name, description.SHARE) for name in names]:
        if options.members:
            _describe_members(seen, verbose=options.verbose)
        elif options.state is not None:
            await _describe_state(client, seen, verbose=options.verbose)
        else:
            await _describe_offsets(seen, verbose=options.verbose)


# ---------------------------------------------------------------------- delete


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    deleted, failed = await delete_groups(client, options, description.SHARE, "is not a share group.")
    print_deletion(description.SHARE, deleted, failed)


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    await print_groups(client, options, description.SHARE)


async def _delete_offsets(client: ClusterClient, options: argparse.Namespace) -> None:
    group, topics = options.group[0], sorted(set(options.topic))
    channel = await connect_to_coordinator(client, group)
    rows = [delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
    answer = await channel.call(delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group, rows))
    error = ProtocolError(ErrorCode(answer.error_code), answer.error_message) if answer.error_code else None
    results: dict[str, ProtocolError | None] = dict.fromkeys(topics, error)
    for row in answer.responses:
        if row.error_code:
            results[row.topic_name] = ProtocolError(ErrorCode(row.error_code), row.error_message)
    first = next((x for x in results.values() if x is not None), None)
    if first is not None and first.code in GROUP_CODES:
        print(f"\nError: {message_text(first)}")
    elif first is not None and first.code not in TOPIC_CODES:
        print(f"\nError: Encounter some unknown error: {java_text(first)}")
    shown = [[topic, "Successful" if x is None else f"Error: {message_text(x)}"] for topic, x in results.items()]
    print_cells([widest(15, topics), 0], [["TOPIC", "STATUS"], *shown])


# ---------------------------------------------------------------------- reset


class ShareOffsetReset(OffsetReset):
    """Action ``--reset-offsets`` for a share group without members; if it has members, the tool exits with status 1."""

    async def _state(self, group: str) -> str:
        return (await description.describe_group_of_type(self._client, group, description.SHARE)).state

    def _refuse_active(self, group: str, state: str) -> NoReturn:
        print(f"Share group '{group}' is not empty.", file=sys.stderr)
        raise SystemExit(1)

    async def _present(self, group: str) -> Offsets:
        if not self._options.all_topics:
            return {}
        try:
            return await start_offsets(await description.describe_group_of_type(self._client, group, description.SHARE))
        except ProtocolError as error:
            raise ToolFailed(message_text(error)) from None

    async def _store(self, group: str, new: Offsets) -> None:
        rows = [
            alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
                topic,
                [
                    alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(number, offset)
                    for number, offset in offsets.items()
                ],
            )
            for topic, offsets in group_by_topic(new).items()
        ]
        channel = await connect_to_coordinator(self._client, group)
        answer = await channel.call(alter_share_group_offsets.AlterShareGroupOffsetsRequest(group, rows))
        failed = [
            f"{topic.topic_name}-{row.partition_index}"
            for topic in answer.responses
            for row in topic.partitions
            if row.error_code
        ]
        if answer.error_code:
            failed = [f"{topic}-{number}" for topic, number in sorted(new)]
        if failed:
            shown = ", ".join(failed)
            raise ToolFailed(f"Failed altering group offsets for the following partitions: [{shown}]")


def run(arguments: list[str]) -> int:
    """Run ``kafka-share-groups`` against a cluster and return the exit status.

    Returns:
        0, also after an action that failed and was reported; 1 without connection; 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)

    async def act(client: ClusterClient) -> None:
        if options.reset_offsets:
            await ShareOffsetReset(client, options, parser).run([options.group[0]])
        elif options.delete_offsets:
            await _delete_offsets(client, options)
        else:
            work = _list if options.list else _describe if options.describe else _delete
            await work(client, options)

    return run_tool(options, act, FAILURES)
