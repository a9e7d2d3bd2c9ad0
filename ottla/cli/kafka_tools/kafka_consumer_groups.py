"""``ottla kafka-consumer-groups``: the tool ``kafka-consumer-groups.sh``.

Source: ``ConsumerGroupCommand``, ``ConsumerGroupCommandOptions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import connect_to_coordinator
from ottla.cli.group_admin import description
from ottla.cli.group_admin.offsets import LATEST, TopicPartitionKey, fetch_committed_entries, list_offsets
from ottla.cli.kafka_tools.java_errors import java_text
from ottla.cli.kafka_tools.text_tables import padded, widest
from ottla.cli.kafka_tools.tool_options import FailureFormat, ToolFailed, ToolOptions, has, java_long, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.env.hosts import format_address
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import list_groups

TEXT = (
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets."
)
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
TARGETS = ("to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file")
FAILURES = FailureFormat("\nError: Executing consumer group command failed due to ", has_class=True, status=0)
"""A failed action is printed, and the exit status stays 0."""
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
TYPES = ("Classic", "Consumer")
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
NO_EXECUTE_WARNING = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are "
    "scripting this command and want to keep the current default behavior without prompting."
)
MISSING = "-"


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-consumer-groups", TEXT)
    out.connection()
    out.option("group", "The consumer group; may be repeated.", is_repeated=True)
    out.option("topic", "A topic, or topic:0,1 for some of its partitions; may be repeated.", is_repeated=True)
    out.flag("all-topics", "With --reset-offsets: all topics that the group has offsets of.")
    out.flag("all-groups", "Apply to all consumer groups.")
    out.flag("list", "List all consumer groups.")
    out.flag("describe", "Describe consumer groups and list offset lag.")
    out.flag("delete", "Delete consumer groups.")
    out.flag("reset-offsets", "Reset offsets of inactive consumer groups.")
    out.flag("delete-offsets", "Delete offsets of a consumer group.")
    out.option("validate-regex", "Check that a regular expression is valid according to the RE2 format.")
    out.option("timeout", "Accepted for compatibility; requests wait up to 30 s.", java_long)
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
    out.flag("members", "With --describe: members of the group.")
    out.flag("verbose", "With --describe: more columns.")
    out.flag("offsets", "With --describe: partitions with their offsets and lag (the default).")
    out.optional_value(
        "state", "With --describe: state of the group; with --list: states of groups, or groups in them."
    )
    out.optional_value("type", "With --list: types of groups, or groups of these types.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options; print Kafka's error message and exit with status 1 if it is invalid.

    For ``--reset-offsets`` without ``--dry-run`` or ``--execute``, print Kafka's warning that nothing is changed.
    """
    for name, actions in (
        *((name, ("describe",)) for name in ("members", "verbose", "offsets")),
        ("state", ("describe", "list")),
        ("type", ("list",)),
    ):
        if has(options, name) and not any(has(options, action) for action in actions):
            parser.error(f"Option(s) [{name}] are unavailable given other options on the command line")
    if not has(options, "validate-regex"):
        parser.require(options, "bootstrap-server")
    scopes = "[group], [all-groups]"
    for action in ("describe", "delete", "reset-offsets"):
        if has(options, action) and not (has(options, "group") or has(options, "all-groups")):
            parser.fail_with_usage(f"Option [{action}] takes one of these options: {scopes}")
    if options.describe:
        if sum(has(options, name) for name in ("members", "offsets", "state")) > 1:
            parser.fail_with_usage(
                "Option [describe] takes at most one of these options: [members], [offsets], [state]"
            )
        if options.state:
            parser.fail_with_usage("Option [describe] does not take a value for [state]")
    if options.delete and has(options, "topic"):
        parser.fail_with_usage("The consumer does not support topic-specific offset deletion from a consumer group.")
    if has(options, "delete-offsets") and not (has(options, "group") and has(options, "topic")):
        parser.fail_with_usage("Option [delete-offsets] takes the following options: [group], [topic]")
    if has(options, "reset-offsets"):
        if options.dry_run and options.execute:
            parser.fail_with_usage("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not options.dry_run and not options.execute:
            print(NO_EXECUTE_WARNING, file=sys.stderr)
        for name in TARGETS:
            parser.exclude(options, name, *(other for other in TARGETS if other != name))
    parser.exclude(options, "group", "all-groups", "list")
    parser.exclude(options, "topic", "list", "describe")
    if sum(has(options, name) for name in ACTIONS) != 1:
        shown = ", ".join(f"--{name}" for name in ACTIONS)
        parser.fail_with_usage(f"Command must include exactly one action: {shown}")
    for name, known in (("state", STATES), ("type", TYPES)):
        text = getattr(options, name)
        lowered = [word.lower() for word in known]
        if text and any(word.strip().lower() not in lowered for word in text.split(",")):
            kind = {"state": "state", "type": "types"}[name]
            parser.fail_with_usage(
                f"Invalid {kind} list '{text}'. Valid {kind.removesuffix('s')}s are: {', '.join(known)}"
            )


# ---------------------------------------------------------------------- list


async def _listed(client: ClusterClient, states: Sequence[str], types: Sequence[str]) -> list[list_groups.ListedGroup]:
    """Return the ListGroups rows of all brokers for groups of consumers, sorted by group id.

    Only groups in one of ``states`` and of one of ``types`` are listed; an empty list matches all. Groups with another
    protocol type than consumer are left out, but not those without one, which have only committed offsets.

    Raises:
        ProtocolError: a broker refused the request.
    """
    rows = []
    for channel in await client.all_brokers():
        answer = await channel.call(list_groups.ListGroupsRequest(list(states), list(types)))
        if answer.error_code:
            raise ProtocolError(ErrorCode(answer.error_code))
        rows += [row for row in answer.groups if row.protocol_type in ("", "consumer")]
    return sorted(rows, key=lambda row: row.group_id)


async def list_group_ids(client: ClusterClient) -> list[str]:
    """Return the sorted ids of all consumer groups (KIP-848) and of classic groups of consumers or without protocol.

    Raises:
        ProtocolError: a broker refused ListGroups.
    """
    return [row.group_id for row in await _listed(client, (), ("classic", "consumer"))]


def _words(text: str | None) -> list[str]:
    return [word.strip().lower() for word in text.split(",")] if text else []


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    shows_type, shows_state = options.type is not None, options.state is not None
    if not shows_type and not shows_state:
        for group in await list_group_ids(client):
            print(group)
        return
    rows = await _listed(client, _words(options.state), _words(options.type))
    heads = ["GROUP", *["TYPE"] * shows_type, *["STATE"] * shows_state]
    widths = [widest(15, [row.group_id for row in rows]) + 10, *[20] * (len(heads) - 1)]
    print(padded(widths, heads))
    for row in rows:
        cells = [row.group_id, *[row.group_type.capitalize()] * shows_type, *[row.group_state] * shows_state]
        print(padded(widths, cells))


# ---------------------------------------------------------------------- describe


def _has_rows(seen: description.GroupDescription, count: int) -> bool:
    """Print a message if a group does not exist, is empty or is rebalancing; return True if its table has rows.

    It has none if the group does not exist or ``count`` is 0.
    """
    if seen.state == "Dead":
        print(f"\nError: Consumer group '{seen.id}' does not exist.")
        return False
    if seen.state == "Empty":
        print(f"\nConsumer group '{seen.id}' has no active members.", file=sys.stderr)
    elif seen.state in REBALANCING:
        print(f"\nWarning: Consumer group '{seen.id}' is rebalancing.", file=sys.stderr)
    return count > 0


def _cell(value: Any) -> str:
    return MISSING if value is None else str(value)


async def _offset_rows(client: ClusterClient, seen: description.GroupDescription) -> list[list[str]]:
    """Return a table row for each partition that is assigned to a member or has a committed offset.

    A cell without a known value is ``-``.

    Raises:
        ToolFailed: a topic does not exist or may not be described.
        CommandFailed: the coordinator refused OffsetFetch.
    """
    committed = await fetch_committed_entries(seen.channel, seen.id)
    owners: list[tuple[list[TopicPartitionKey], dict[str, Any]]] = []
    for member in description.describe_members(seen):
        assigned = [(topic, number) for topic, numbers in (member["assignment"] or {}).items() for number in numbers]
        if assigned:
            owners.append((sorted(assigned), member))
    owners.sort(key=lambda item: -len(item[0]))
    read = {at for assigned, _ in owners for at in assigned}
    no_member = {"member": MISSING, "host": MISSING, "client": MISSING}
    owners.append((sorted(at for at in committed if at not in read), no_member))
    wanted = [at for assigned, _ in owners for at in assigned]
    for topic in (await client.metadata(sorted({topic for topic, _ in wanted}))).topics if wanted else ():
        if topic.error_code:
            error = ProtocolError(ErrorCode(topic.error_code))
            raise ToolFailed(f"java.util.concurrent.ExecutionException: {java_text(error)}")
    ends = await list_offsets(client, wanted, LATEST)
    rows = []
    for assigned, member in owners:
        for at in assigned:
            row, end = committed.get(at), ends.get(at)
            offset = None if row is None else row.committed_offset
            epoch = None if row is None or row.committed_leader_epoch < 0 else row.committed_leader_epoch
            lag = None if offset is None or end is None else end - offset
            shown = [seen.id, at[0], at[1], epoch, offset, end, lag, member["member"], member["host"], member["client"]]
            rows.append([_cell(value) for value in shown])
    return rows


async def _describe_offsets(client: ClusterClient, seen: description.GroupDescription, *, verbose: bool) -> None:
    rows = await _offset_rows(client, seen)
    if not _has_rows(seen, len(rows)):
        return
    heads = ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    heads += ["CONSUMER-ID", "HOST", "CLIENT-ID"]
    widths = [widest(15, [row[i] for row in rows]) for i in range(9)] + [0]
    widths[2:7] = [10, 15, 15, 15, 15]
    kept = [i for i in range(10) if verbose or heads[i] != "LEADER-EPOCH"]
    for row in (heads, *rows):
        print("\n" + padded([widths[i] for i in kept], [row[i] for i in kept]), end="")
    print()


def _assignment_text(assignment: description.AssignedPartitions | None) -> str:
    shown = [f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in (assignment or {}).items() if numbers]
    return ";".join(sorted(shown)) or MISSING


def _describe_members(seen: description.GroupDescription, *, verbose: bool) -> None:
    members = description.describe_members(seen) if _has_rows(seen, len(seen.response.members)) else []
    has_instance = any(member["instance"] for member in members)
    rows = [
        [
            *(seen.id, member["member"]),
            *[member["instance"] or ""] * has_instance,
            *(member["host"], member["client"], sum(map(len, (member["assignment"] or {}).values()))),
        ]
        for member in members
    ]
    heads = ["GROUP", "CONSUMER-ID", *["GROUP-INSTANCE-ID"] * has_instance, "HOST", "CLIENT-ID", "#PARTITIONS"]
    least = [15, 15, *[17] * has_instance, 15, 15, 15]
    if verbose:
        is_mixed = len({member.get("protocol") for member in members} - {None}) > 1
        heads += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT", *["UPGRADED"] * is_mixed]
        least += [15, 20, 15, 20, *[0] * is_mixed]
        target_epoch = _cell(getattr(seen.response, "assignment_epoch", None))
        for row, member in zip(rows, members, strict=True):
            row += [_cell(member.get("epoch")), _assignment_text(member["assignment"]), target_epoch]
            row += [_assignment_text(member.get("target"))]
            row += [str(member.get("protocol") == description.CONSUMER).lower()] * is_mixed
    fixed = ("#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH", "UPGRADED")
    widths = [w if heads[i] in fixed else widest(w, [row[i] for row in rows]) for i, w in enumerate(least)]
    print()
    for row in (heads, *rows):
        print(padded(widths, row), end="\n" if verbose else " \n")


async def _describe_state(client: ClusterClient, seen: description.GroupDescription, *, verbose: bool) -> None:
    if not _has_rows(seen, 1):
        return
    brokers = {broker.node_id: broker for broker in (await client.metadata([])).brokers}
    at = brokers[seen.node]
    row = description.summarize_group(seen)
    coordinator = f"{format_address(at.host, at.port)}  ({at.node_id})"
    heads = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    cells = [seen.id, coordinator, _cell(row["assignor"]), seen.state]
    widths = [widest(15, [seen.id]), widest(25, [coordinator]), 20, 20]
    if verbose:
        heads += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        cells += [_cell(row["epoch"]), _cell(row["target_epoch"])]
        widths += [15, 25]
    print("\n" + padded([*widths, 0], [*heads, "#MEMBERS"]))
    print(padded([*widths, 0], [*cells, len(seen.response.members)]))


async def _group_ids(client: ClusterClient, options: argparse.Namespace) -> list[str]:
    return await list_group_ids(client) if options.all_groups else list(dict.fromkeys(options.group))


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    groups = [
        await description.describe_consumer_group(client, name) for name in sorted(await _group_ids(client, options))
    ]
    for seen in groups:
        if options.members:
            _describe_members(seen, verbose=options.verbose)
        elif options.state is not None:
            await _describe_state(client, seen, verbose=options.verbose)
        else:
            await _describe_offsets(client, seen, verbose=options.verbose)


# ---------------------------------------------------------------------- delete, reset


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    # lazy: 0.4 ms, 9 kB: only with --delete
    from ottla.wire.messages.delete_groups import DeleteGroupsRequest

    deleted, failed = [], []
    for group in await _group_ids(client, options):
        channel = await connect_to_coordinator(client, group)
        code = (await channel.call(DeleteGroupsRequest([group]))).results[0].error_code
        if code:
            failed.append((group, java_text(ProtocolError(ErrorCode(code)))))
        else:
            deleted.append(group)
    shown = ", ".join(f"'{group}'" for group in deleted)
    if not failed:
        print(f"Deletion of requested consumer groups ({shown}) was successful.")
        return
    print("\nError: Deletion of some consumer groups failed:")
    for group, text in failed:
        print(f"* Group '{group}' could not be deleted due to: {text}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {shown}")


def _validate_regex(text: str) -> int:
    """Print whether RE2 accepts a regular expression; return exit status 0 in both cases."""
    # lazy: 2.5 ms, 138 kB: only with --validate-regex
    import re2

    quiet = re2.Options()
    quiet.log_errors = False
    try:
        re2.compile(text, quiet)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0]
        shown = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        print(f"The regular expression `{text}` is invalid: {shown.partition(':')[0]}.")
    else:
        print(f"The regular expression `{text}` is valid.")
    return 0


def run(arguments: list[str]) -> int:
    """Run ``kafka-consumer-groups`` against a cluster and return the exit status.

    Returns:
        0, also after an action that failed and was reported; 1 without connection; 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    if options.validate_regex is not None:
        return _validate_regex(options.validate_regex)

    async def act(client: ClusterClient) -> None:
        if options.list:
            await _list(client, options)
        elif options.describe:
            await _describe(client, options)
        elif options.delete:
            await _delete(client, options)
        else:
            # lazy: 3.6 ms, 193 kB: only to change offsets
            from ottla.cli.kafka_tools.consumer_group_offsets import OffsetReset, delete_offsets

            if options.delete_offsets:
                await delete_offsets(client, options, parser)
            else:
                await OffsetReset(client, options, parser).run(await _group_ids(client, options))

    return run_tool(options, act, FAILURES)
