"""``ottla kafka-streams-groups``: the tool ``kafka-streams-groups.sh``.

Source: ``StreamsGroupCommand``, ``StreamsGroupCommandOptions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.group_admin import description
from ottla.cli.group_admin.offsets import EARLIEST, LATEST, TopicPartitionKey, fetch_committed_entries, list_offsets
from ottla.cli.group_admin.reset import internal_topics
from ottla.cli.kafka_tools.consumer_group_offsets import OffsetReset, Offsets, delete_offsets
from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.text_tables import padded, widest
from ottla.cli.kafka_tools.tool_options import FailureFormat, ToolOptions, has, java_long, run_tool
from ottla.cli.kafka_tools.typed_groups import (
    check_available,
    check_describe,
    check_states,
    chosen_groups,
    delete_groups,
    print_deletion,
    print_groups,
)
from ottla.client.cluster_client import ClusterClient
from ottla.env.hosts import format_address
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TEXT = "This tool helps to list, or describe streams groups."
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
TARGETS = ("to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file")
STATES = ("Assigning", "Dead", "Empty", "NotReady", "Reconciling", "Stable")
FAILURES = FailureFormat("\nError: Executing streams group command failed due to ", has_class=True)
MISSING = "-"
ROLES = ("active", "standby", "warmup")
RESET_WIDTHS = (30, 30, 10, 15)


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-streams-groups", TEXT)
    out.connection()
    out.option("group", "The streams group; may be repeated.", is_repeated=True)
    text = "An input topic, or topic:0,1 for some of its partitions; may be repeated."
    out.option("input-topic", text, is_repeated=True)
    out.flag("all-input-topics", "All input topics of the group.")
    out.flag("all-groups", "Apply to all streams groups.")
    out.flag("list", "List all streams groups.")
    out.flag("describe", "Describe streams groups, their members and offsets.")
    out.flag("delete", "Delete streams groups.")
    out.flag("delete-offsets", "Delete offsets of input topics of a streams group.")
    out.flag("reset-offsets", "Reset offsets of streams groups without members.")
    out.option("timeout", "Accepted for compatibility; requests wait up to 30 s.", java_long)
    out.optional_value("state", "With --describe: state; with --list: states of groups, or groups in them.")
    out.flag("members", "With --describe: members of the group.")
    out.flag("offsets", "With --describe: partitions with their lag (the default).")
    out.flag("verbose", "With --describe: more columns.")
    out.flag("dry-run", "With --reset-offsets: only show the new offsets.")
    out.flag("execute", "With --reset-offsets: commit the new offsets.")
    out.flag("export", "With --reset-offsets: print the new offsets as CSV.")
    out.option("to-offset", "Reset offsets to a specific offset.", java_long)
    out.option("from-file", "Reset offsets to values defined in a CSV file.")
    out.option("to-datetime", "Reset offsets to the offset of a time: YYYY-MM-DDThh:mm:ss.sss.")
    out.option("by-duration", "Reset offsets to the offset of a time before now: PnDTnHnMnS.")
    out.flag("to-earliest", "Reset offsets to the earliest offset.")
    out.flag("to-latest", "Reset offsets to the latest offset.")
    out.flag("to-current", "Reset offsets to the current offset.")
    out.option("shift-by", "Reset offsets by shifting the current offset.", java_long)
    text = "With --reset-offsets --execute: delete this internal topic; may be repeated."
    out.option("delete-internal-topic", text, is_repeated=True)
    out.flag("delete-all-internal-topics", "With --delete or --reset-offsets --execute: delete all internal topics.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options; print Kafka's error message and exit with status 1 if it is invalid."""
    check_available(parser, options)
    parser.require(options, "bootstrap-server")
    check_describe(parser, options)
    has_scope = has(options, "group") or has(options, "all-groups")
    has_topics = has(options, "input-topic") or has(options, "all-input-topics")
    if options.delete:
        if not has_scope:
            parser.fail_with_usage("Option [delete] takes one of these options: [all-groups], [group]")
        if has_topics:
            parser.fail_with_usage(
                "Kafka Streams does not support topic-specific offset deletion from a streams group."
            )
    if options.delete_offsets:
        if not has_topics or not has(options, "group"):
            shown = "[all-input-topics], [input-topic]"
            parser.fail_with_usage(f"Option [delete-offsets] takes the [group] and one of these options: {shown}")
        if len(options.group) > 1:
            shown = ", ".join(options.group)
            parser.fail_with_usage(f"Option [delete-offsets] supports only one [group] at a time, but found: [{shown}]")
    if options.reset_offsets:
        _check_reset(parser, options, has_scope=has_scope)
    _check_internal_topics(parser, options)
    if (options.dry_run or options.execute) and not options.reset_offsets:
        parser.fail_with_usage("Only Option [reset-offsets] accepts [execute] or [dry-run]")
    parser.exclude(options, "group", "all-groups")
    parser.exclude(options, "group", "list")
    parser.exclude(options, "input-topic", "list", "describe", "delete")
    if sum(has(options, name) for name in ACTIONS) != 1:
        parser.fail_with_usage(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, or "
            "--delete-offsets."
        )
    check_states(parser, options.state, STATES)


def _check_reset(parser: ToolOptions, options: argparse.Namespace, *, has_scope: bool) -> None:
    if options.dry_run and options.execute:
        parser.fail_with_usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.dry_run and not options.execute:
        parser.fail_with_usage("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not has_scope:
        parser.fail_with_usage("Option [reset-offsets] takes one of these options: [all-groups], [group]")
    for name in TARGETS:
        parser.exclude(options, name, *(other for other in TARGETS if other != name))


def _check_internal_topics(parser: ToolOptions, options: argparse.Namespace) -> None:
    if options.delete_all_internal_topics:
        subject = "Option [delete-all-internal-topics]"
        if not options.reset_offsets and not options.delete:
            parser.fail_with_usage(f"{subject} takes one of these options: [delete], [reset-offsets]")
        if options.reset_offsets and not options.execute:
            parser.fail_with_usage(f"{subject} takes [execute] when [reset-offsets] is used.")
    elif has(options, "delete-internal-topic") and not (options.reset_offsets and options.execute):
        parser.fail_with_usage("Option [delete-internal-topic] takes [reset-offsets] when [execute] is used.")


# ---------------------------------------------------------------------- describe


def _warn_empty(seen: description.GroupDescription) -> None:
    if seen.state == "Dead":
        print(f"\nError: Streams group '{seen.id}' does not exist.")
    elif seen.state == "Empty":
        print(f"\nError: Streams group '{seen.id}' has no active members.")


def _tasks(tasks: Mapping[str, Sequence[int]], title: str) -> str:
    """Return a role's tasks as text: ``title``, and each subtopology with its partitions; empty without tasks."""
    rows = (f"{name}:[{','.join(map(str, numbers))}]; " for name, numbers in tasks.items())
    return f"{title}: {''.join(rows)}" if tasks else ""


def _describe_members(seen: description.GroupDescription, *, verbose: bool) -> None:
    members = description.describe_members(seen)
    if not members:
        return
    _warn_empty(seen)
    rows = []
    for member in members:
        tasks = "".join(_tasks(member[role], role.upper()) for role in ROLES)
        names = (member["member"], member["process"], member["client"])
        if verbose:
            tasks += "".join(_tasks(member[f"target_{role}"], f"TARGET-{role.upper()}") for role in ROLES)
            epochs = seen.response.assignment_epoch, seen.response.topology.epoch
            rows.append(
                [seen.id, epochs[0], f"{epochs[1]:<15}{names[0]}", "streams", member["epoch"], *names[1:], tasks]
            )
        else:
            rows.append([seen.id, *names, tasks])
    widths = [widest(15, [member[name] for member in members]) for name in ("member", "process", "client")]
    heads = ["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
    sizes = [widest(15, [seen.id]), *widths, 0]
    if verbose:  # no blank stands between the topology's epoch and the member
        heads = ["GROUP", "TARGET-ASSIGNMENT-EPOCH", "TOPOLOGY-EPOCH".ljust(15) + "MEMBER", "MEMBER-PROTOCOL"]
        heads += ["MEMBER-EPOCH", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]
        sizes = [sizes[0], 25, 15 + widths[0], 15, 15, *widths[1:], 0]
    for row in (heads, *rows):
        print(padded(sizes, row))


async def _describe_state(client: ClusterClient, seen: description.GroupDescription, *, verbose: bool) -> None:
    _warn_empty(seen)
    at = next(broker for broker in (await client.metadata([])).brokers if broker.node_id == seen.node)
    coordinator = f"{format_address(at.host, at.port)} ({at.node_id})"
    epochs = [seen.response.group_epoch, seen.response.assignment_epoch] * verbose
    heads = ["GROUP", "COORDINATOR (ID)", "STATE", *["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"] * verbose, "#MEMBERS"]
    widths = [widest(15, [seen.id]), widest(25, [coordinator]), 25, *[15, 25] * verbose, 0]
    print(padded(widths, heads))
    print(padded(widths, [seen.id, coordinator, seen.state, *epochs, len(seen.response.members)]))


def _source_topics(seen: description.GroupDescription, *, with_repartition: bool) -> set[str]:
    rows = description.describe_topology(seen)
    return {name for row in rows for name in (*row["reads"], *(row["repartition"] if with_repartition else ()))}


async def _committed(seen: description.GroupDescription, *, with_repartition: bool) -> dict[TopicPartitionKey, Any]:
    """Return the OffsetFetch row of each partition of the source topics for which a group has a committed offset.

    ``with_repartition``: include the repartition topics of the group.

    Raises:
        CommandFailed: the coordinator refused OffsetFetch.
    """
    topics = _source_topics(seen, with_repartition=with_repartition)
    return {at: row for at, row in (await fetch_committed_entries(seen.channel, seen.id)).items() if at[0] in topics}


async def _describe_offsets(client: ClusterClient, seen: description.GroupDescription, *, verbose: bool) -> None:
    places = sorted(description.partition_owners(seen))
    starts, ends = await list_offsets(client, places, EARLIEST), await list_offsets(client, places, LATEST)
    committed = await _committed(seen, with_repartition=True)
    if not seen.response.members:
        return
    _warn_empty(seen)
    rows = []
    for at in places:
        entry, end = committed.get(at), ends[at]
        lag = end - (starts[at] if entry is None else entry.committed_offset)
        epoch = None if entry is None or entry.committed_leader_epoch < 0 else entry.committed_leader_epoch
        shown = [None if entry is None else entry.committed_offset, epoch, end] if verbose else []
        rows.append([seen.id, *at, *(MISSING if value is None else value for value in shown), lag])
    more = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET"] * verbose
    heads: list[Any] = ["GROUP", "TOPIC", "PARTITION", *more, "OFFSET-LAG"]
    last = [15, 15, 15, 15] if verbose else [0]
    widths = [widest(15, [seen.id]), widest(15, [at[0] for at in places]), 10, *last]
    for row in (heads, *rows):
        print(padded(widths, row))


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    for name in await chosen_groups(client, options, description.STREAMS):
        seen = await description.describe_group_of_type(client, name, description.STREAMS)
        if options.members:
            _describe_members(seen, verbose=options.verbose)
        elif options.state is not None:
            await _describe_state(client, seen, verbose=options.verbose)
        else:
            await _describe_offsets(client, seen, verbose=options.verbose)


# ---------------------------------------------------------------------- delete, reset


def _internal_topics(seen: description.GroupDescription) -> list[str]:
    """Return the internal topics of a streams group that its name and their suffixes show to be internal.

    Other topics that the topology creates are kept, with an error message for each.
    """
    rows = description.describe_topology(seen)
    known = internal_topics(seen)
    made = {name for row in rows for name in (*row["repartition"], *row["changelogs"])}
    for name in sorted(made - _source_topics(seen, with_repartition=False) - set(known)):
        print(
            f"\nError: The internal topic '{name}' is not inferred as internal and thus will not be deleted with the "
            f"group '{seen.id}'."
        )
    return known


async def _delete_topics(client: ClusterClient, names: Sequence[str]) -> dict[str, ProtocolError]:
    """Delete topics; return the error of each that was not deleted, also if it does not exist."""
    if not names:
        return {}
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=30_000)
    rows = (await client.call(request)).responses
    return {
        row.name or "": ProtocolError(ErrorCode(row.error_code), row.error_message) for row in rows if row.error_code
    }


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    topics: dict[str, list[str]] = {}
    if options.delete_all_internal_topics:
        for name in await chosen_groups(client, options, description.STREAMS):
            seen = await description.describe_group(client, name)
            if seen is not None and seen.group_type == description.STREAMS and (found := _internal_topics(seen)):
                topics[name] = found
    deleted, failed = await delete_groups(
        client, options, description.STREAMS, "does not exist or is not a streams group."
    )
    failures: dict[str, str] = {}
    for name in deleted:
        errors = await _delete_topics(client, topics.get(name, []))
        for topic, error in errors.items():
            print(f"Failed to delete internal topic: {topic}")
            failures[name] = java_text(error)
    print_deletion(description.STREAMS, deleted, failed, ".")
    if topics and deleted and not failures:
        shown = "', '".join(name for name in deleted if name in topics)
        print(f"Deletion of associated internal topics of the streams groups ('{shown}') was successful.")
    elif failures:
        print("Deletion of some associated internal topics failed:")
        for name, text in failures.items():
            print(f"* Internal topics of the streams group '{name}' could not be deleted due to: {text}")


class StreamsOffsetReset(OffsetReset):
    """Action ``--reset-offsets`` for streams groups without members; ``--execute`` can also delete internal topics."""

    async def _state(self, group: str) -> str:
        return (await description.describe_group_of_type(self._client, group, description.STREAMS)).state

    async def _present(self, group: str) -> Offsets:
        seen = await description.describe_group_of_type(self._client, group, description.STREAMS)
        found = await _committed(seen, with_repartition=not self._options.all_topics)
        return {at: row.committed_offset for at, row in found.items()}

    async def _partitions(self, committed: Mapping[TopicPartitionKey, int]) -> list[TopicPartitionKey]:
        wanted = await super()._partitions(committed)
        if self._options.topic and not self._options.all_topics and not committed.keys() >= set(wanted):
            await self._check(wanted)
            print(f"\nError: One or more topics are not part of the group '{self._group}'.")
            return []
        return wanted

    async def _inactive_group(self, group: str) -> Offsets:
        self._group = group
        new = await super()._inactive_group(group)
        options = self._options
        if options.execute:
            names: list[str] = options.delete_internal_topic or []
            if options.delete_all_internal_topics:
                names = _internal_topics(
                    await description.describe_group_of_type(self._client, group, description.STREAMS)
                )
            for error in (await _delete_topics(self._client, names)).values():
                is_missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                why = "because the topics do not exist." if is_missing else f"due to {java_text(error)}"
                print(f"\nError: Deleting internal topics for group '{group}' failed {why}")
                break
        return new

    def _print(self, out: Mapping[str, Offsets]) -> None:
        rows: list[tuple[Any, ...]] = []
        for group, offsets in out.items():
            rows += [(group, *at, offset) for at, offset in sorted(offsets.items())]
        if out:
            rows.insert(0, ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"))
        print("".join("\n" + padded(RESET_WIDTHS, row) for row in rows))


def run(arguments: list[str]) -> int:
    """Run ``kafka-streams-groups``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    options.topic, options.all_topics = options.input_topic, options.all_input_topics

    async def act(client: ClusterClient) -> None:
        if options.reset_offsets:
            groups = await chosen_groups(client, options, description.STREAMS)
            await StreamsOffsetReset(client, options, parser).run(groups)
        elif options.delete_offsets:
            if options.all_topics:
                seen = await description.describe_group_of_type(client, options.group[0], description.STREAMS)
                found = sorted(await _committed(seen, with_repartition=False))
                options.topic = [f"{topic}:{number}" for topic, number in found]
            await delete_offsets(client, options, parser)
        elif options.list:
            await print_groups(client, options, description.STREAMS)
        else:
            await (_describe if options.describe else _delete)(client, options)

    return run_tool(options, act, FAILURES)
