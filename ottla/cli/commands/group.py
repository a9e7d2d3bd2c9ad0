"""``ottla group``: list, describe, reset and delete classic, consumer, share and streams groups."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from ottla.cli.arguments import command_parser, names
from ottla.cli.common import add_connection, connect_to_coordinator, print_output, run_with_client, unknown_group
from ottla.cli.errors import CommandFailed, code_text, raise_for_error
from ottla.cli.group_admin import description, reset
from ottla.cli.group_admin.offsets import format_table, resolve_partitions
from ottla.cli.group_admin.share_offsets import describe_in_flight_records
from ottla.client.cluster_client import ClusterClient
from ottla.env.log_escaping import escape
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import list_groups
from ottla.wire.messages.delete_groups import DeleteGroupsRequest
from ottla.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

TEXT = """A group divides its topics among its members. In a classic or consumer group, one member reads each partition
and commits offsets. A share group delivers each record to any member. A streams group assigns tasks.

examples:
  ottla group list --type share,streams
  ottla group describe billing              members, assignments, committed offsets, lag
  ottla group describe orders --records     of a share group: the state of deliveries
  ottla group reset billing --topic events:0,1 --to-datetime 2026-01-31T00:00:00
  ottla group reset billing --all-topics --shift-by -100 --execute
  ottla group delete billing
  ottla group delete-offsets billing --topic events
"""


TYPES = (description.CLASSIC, description.CONSUMER, description.SHARE, description.STREAMS)
STATES = (
    *("Assigning", "CompletingRebalance", "Dead", "Empty", "NotReady", "PreparingRebalance", "Reconciling"),
    *("Stable", "Unknown"),
)
"""States of groups that ``ottla group list --state`` accepts. Source: ``GroupState.java`` (apache/kafka 4.3.1)."""


def _parser() -> argparse.ArgumentParser:
    out = command_parser("group", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list groups with their type and state"),
        ("describe", "show members, assignments, committed offsets and lag of groups"),
        ("reset", "reset committed offsets, or show the new offsets (the default)"),
        ("delete", "delete groups without members"),
        ("delete-offsets", "delete committed offsets of a group"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        if name == "list":
            text = f"only groups of these types, separated by commas: {', '.join(TYPES)}"
            verb.add_argument("--type", type=names("group type", TYPES), metavar="TYPES", help=text)
            text = f"only groups in these states, separated by commas: {', '.join(STATES)}"
            verb.add_argument("--state", type=names("group state", STATES), metavar="STATES", help=text)
            continue
        verb.add_argument("group", nargs=1 if name == "delete-offsets" else "*", help="ids of groups")
        if name != "delete-offsets":
            verb.add_argument("--all", action="store_true", help="all groups")
        if name in ("reset", "delete-offsets"):
            needed = name == "delete-offsets"
            text = "topic, or some of its partitions; may be repeated"
            verb.add_argument("--topic", action="append", required=needed, metavar="TOPIC[:0,1]", help=text)
        if name in ("reset", "delete"):
            text = "also delete the internal topics of streams groups"
            verb.add_argument("--internal-topics", action="store_true", help=text)
        if name == "describe":
            text = "of share groups, also show the stored delivery state of records"
            verb.add_argument("--records", action="store_true", help=text)
        if name == "reset":
            verb.add_argument(
                "--all-topics", action="store_true", help="all partitions with a committed offset of the group"
            )
            text = "treat a group that does not exist as a share group"
            verb.add_argument("--share", action="store_true", help=text)
            do = verb.add_mutually_exclusive_group()
            do.add_argument("--dry-run", action="store_true", help="show the new offsets only (the default)")
            do.add_argument("--execute", action="store_true", help="commit the new offsets")
            verb.add_argument("--export", action="store_true", help="print the offsets in the format of --from-file")
            reset.add_target_options(verb)
    return out


async def _listed(client: ClusterClient) -> list[dict[str, Any]]:
    rows = []
    for connection in await client.all_brokers():
        answer = await connection.call(list_groups.ListGroupsRequest())
        raise_for_error(answer.error_code, None, "groups")
        rows += [
            {"group": g.group_id, "state": g.group_state, "type": g.group_type, "protocol": g.protocol_type}
            for g in answer.groups
        ]
    return sorted(rows, key=lambda row: str(row["group"]))


def _only(rows: Iterable[dict[str, Any]], key: str, wanted_names: str | None) -> list[dict[str, Any]]:
    wanted = None if wanted_names is None else {word.strip().lower() for word in wanted_names.split(",")}
    return [row for row in rows if wanted is None or str(row[key]).lower() in wanted]


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    rows = _only(_only(await _listed(client), "type", options.type), "state", options.state)
    print_output(rows, options.output, "no groups")


async def _groups(client: ClusterClient, options: argparse.Namespace) -> list[str]:
    if not options.all and not options.group:
        raise CommandFailed("group id or --all expected")
    return [row["group"] for row in await _listed(client)] if options.all else list(dict.fromkeys(options.group))


async def _each(groups: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Call ``work`` for each group; after a CommandFailed for one group it is still called for the others.

    Raises:
        CommandFailed: all failures, joined into one message.
    """
    failed = []
    for group in groups:
        try:
            await work(group)
        except CommandFailed as error:
            failed.append(str(error))
    if failed:
        raise CommandFailed("; ".join(failed))


# ---------------------------------------------------------------------- describe


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []

    async def one(group_id: str) -> None:
        seen = await description.describe_group(client, group_id)
        if seen is None:
            raise unknown_group(group_id)
        row = {
            **description.summarize_group(seen),
            "members": description.describe_members(seen),
            "positions": await description.describe_offsets(client, seen),
        }
        if seen.group_type == description.STREAMS:
            row["topology"] = description.describe_topology(seen)
        if seen.group_type == description.SHARE and options.records:
            row["records"] = await describe_in_flight_records(client, seen)
        if options.output == "text":
            _print(row, first=not rows)
        rows.append(row)

    try:
        await _each(await _groups(client, options), one)
    finally:
        if options.output != "text" or (options.all and not rows):
            print_output(rows, options.output, "no groups")


def _print(row: dict[str, Any], *, first: bool) -> None:
    if not first:
        print()
    epochs = "" if row["epoch"] is None else f", epoch {row['epoch']}, target of epoch {row['target_epoch']}"
    by = "" if row["assignor"] is None else f", assigned by {row['assignor']}"
    count = len(row["members"])
    head = f"{row['group']}: {row['type']} group, {row['state']}"
    print(escape(f"{head}{epochs}{by}, {count} members, coordinated by node {row['coordinator']}"))
    for part in ("topology", "positions", "records", "members"):
        print_output(format_table(row.get(part, ())), "text")


# ---------------------------------------------------------------------- reset, delete


async def _reset(client: ClusterClient, options: argparse.Namespace) -> None:
    groups, rows = await _groups(client, options), list[dict[str, Any]]()
    to, plan = reset.parse_target(options), dict[str, dict[Any, int]]()
    if to.mode == "from_file":
        plan = reset.load_offsets_file(to.value, groups)

    async def one(group_id: str) -> None:
        where = to
        if to.mode == "from_file":
            if group_id not in plan:
                raise CommandFailed(f"no offsets of group {group_id}: {to.value}")
            where = reset.ResetTarget(to.mode, plan[group_id])
        rows.extend(await reset.plan_reset(client, options, group_id, where))
        seen = (
            await description.describe_group(client, group_id) if options.internal_topics and options.execute else None
        )
        if seen is not None and seen.group_type == description.STREAMS:
            await reset.delete_topics(client, reset.internal_topics(seen))

    try:
        await _each(groups, one)
    finally:
        if options.export:
            for row in rows:
                named_too = [escape(row["group"])] if len(groups) > 1 else []
                print(*named_too, row["topic"], row["partition"], row["new"], sep=",")
        else:
            print_output(rows if options.output != "text" else format_table(rows), options.output)
    if not options.execute and not options.export and options.output == "text" and rows:
        print("no offset has been changed: add --execute to apply")


async def _delete(client: ClusterClient, options: argparse.Namespace) -> None:
    gone: list[dict[str, Any]] = []

    async def one(group_id: str) -> None:
        seen = await description.describe_group(client, group_id) if options.internal_topics else None
        answer = await (await connect_to_coordinator(client, group_id)).call(DeleteGroupsRequest([group_id]))
        if answer.results[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise unknown_group(group_id)
        raise_for_error(answer.results[0].error_code, None, f"group {group_id}")
        topics = reset.internal_topics(seen) if seen is not None and seen.group_type == description.STREAMS else []
        await reset.delete_topics(client, topics)
        gone.append({"group": group_id, "deleted": True, "topics": topics})

    try:
        await _each(await _groups(client, options), one)
    finally:
        print_output(gone if options.output != "text" else format_table(gone), options.output)


async def _delete_offsets(client: ClusterClient, options: argparse.Namespace) -> None:
    (group_id,) = options.group
    seen = await description.describe_group(client, group_id)
    if seen is None:
        raise unknown_group(group_id)
    if seen.group_type == description.SHARE:
        if any(":" in item for item in options.topic):
            raise CommandFailed(f"{group_id} is a share group: offsets can be deleted only for whole topics")
        topics = [DeleteShareGroupOffsetsRequestTopic(name) for name in options.topic]
        answer = await seen.channel.call(DeleteShareGroupOffsetsRequest(group_id, topics))
        raise_for_error(answer.error_code, answer.error_message, group_id)
        rows = [({"topic": x.topic_name}, x.error_code, x.error_message) for x in answer.responses]
    else:
        parts: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, number in await resolve_partitions(client, options.topic):
            parts.setdefault(topic, []).append(OffsetDeleteRequestPartition(number))
        request = OffsetDeleteRequest(group_id, [OffsetDeleteRequestTopic(*item) for item in parts.items()])
        answer = await seen.channel.call(request)
        raise_for_error(answer.error_code, None, group_id)
        rows = [
            ({"topic": topic.name, "partition": row.partition_index}, row.error_code, None)
            for topic in answer.topics
            for row in topic.partitions
        ]
    shown = [{**at, "result": code_text(code, why) if code else "deleted"} for at, code, why in rows]
    print_output(sorted(shown, key=lambda row: (row["topic"], row.get("partition", 0))), options.output)
    if any(code for _, code, _ in rows):
        raise CommandFailed(f"group {group_id}: some offsets were not deleted")


VERBS = {
    "list": _list,
    "describe": _describe,
    "reset": _reset,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
}


def run(arguments: list[str]) -> int:
    """Run ``ottla group`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)

    async def work(client: ClusterClient) -> None:
        await VERBS[options.verb](client, options)

    return run_with_client(options, work)
