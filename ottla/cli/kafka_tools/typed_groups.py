"""Actions and option checks of both ``kafka-share-groups`` and ``kafka-streams-groups``: list and delete groups."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ottla.cli.common import connect_to_coordinator
from ottla.cli.kafka_tools.java_errors import java_class, java_text
from ottla.cli.kafka_tools.text_tables import padded, widest
from ottla.cli.kafka_tools.tool_options import ToolOptions, has, raise_for
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import list_groups
from ottla.wire.messages.delete_groups import DeleteGroupsRequest


def check_describe(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the options of ``--describe``; print Kafka's error message and exit with status 1 if they are invalid."""
    if not options.describe:
        return
    if not has(options, "group") and not has(options, "all-groups"):
        parser.fail_with_usage("Option [describe] takes one of these options: [all-groups], [group]")
    if sum(has(options, name) for name in ("members", "offsets", "state")) > 1:
        parser.fail_with_usage("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if options.state:
        parser.fail_with_usage("Option [describe] does not take a value for [state]")


def check_available(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check that ``--members``, ``--offsets``, ``--verbose`` and ``--state`` are used with an action that has them.

    If not, an error is printed and the tool exits with status 1.
    """
    for name, actions in (
        *((name, ("describe",)) for name in ("members", "offsets", "verbose")),
        ("state", ("describe", "list")),
    ):
        if has(options, name) and not any(has(options, action) for action in actions):
            parser.error(f"Option(s) [{name}] are unavailable given other options on the command line")


def check_states(parser: ToolOptions, text: str | None, states: Sequence[str]) -> None:
    """Check the states of ``--list --state``; print Kafka's error message and exit with status 1 for an unknown one."""
    lowered = [word.lower() for word in states]
    if text and any(word.strip().lower() not in lowered for word in text.split(",")):
        parser.fail_with_usage(f"Invalid state list '{text}'. Valid states are: {', '.join(states)}")


async def listed_groups(
    client: ClusterClient, group_type: str, states: Sequence[str] = ()
) -> list[list_groups.ListedGroup]:
    """Return the ListGroups rows of all brokers for groups of a type, sorted by group id.

    With ``states`` only groups in one of these states are returned.

    Raises:
        ProtocolError: a broker refused the request.
    """
    rows = []
    for channel in await client.all_brokers():
        answer = await channel.call(list_groups.ListGroupsRequest(list(states), [group_type]))
        raise_for(answer.error_code, None)
        rows += answer.groups
    return sorted(rows, key=lambda row: row.group_id)


async def print_groups(client: ClusterClient, options: argparse.Namespace, group_type: str) -> None:
    """Print the ids of all groups of a type; with ``--state`` also their states.

    If ``--state`` has a value, only groups in the states that it names are printed.

    Raises:
        ProtocolError: a broker refused ListGroups.
    """
    if options.state is None:
        for row in await listed_groups(client, group_type):
            print(row.group_id)
        return
    wanted = [word.strip() for word in options.state.split(",")] if options.state else []
    rows = await listed_groups(client, group_type, wanted)
    widths = [widest(15, [row.group_id for row in rows]), 0]
    print(padded(widths, ["GROUP", "STATE"]))
    for row in rows:
        print(padded(widths, [row.group_id, row.group_state]))


async def chosen_groups(client: ClusterClient, options: argparse.Namespace, group_type: str) -> list[str]:
    """Return the ids of ``--group`` without duplicates, or with ``--all-groups`` those of all groups of the type.

    Raises:
        ProtocolError: a broker refused ListGroups.
    """
    if options.all_groups:
        return [row.group_id for row in await listed_groups(client, group_type)]
    return list(dict.fromkeys(options.group))


def print_cells(widths: Sequence[int], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows padded to ``widths``, each after a line break, and a line break at the end."""
    print("".join("\n" + padded(widths, row) for row in rows))


async def delete_groups(
    client: ClusterClient, options: argparse.Namespace, group_type: str, missing: str
) -> tuple[list[str], dict[str, str]]:
    """Delete the groups of the options, each of which must be of the type and Empty.

    ``missing``: end of the message about a group that does not exist or is of another type.

    Returns:
        The ids of the deleted groups, and the error message for each other group.

    Raises:
        ProtocolError: a broker refused ListGroups.
        CommandFailed: no coordinator is available; the groups before are deleted.
    """
    there = {row.group_id: row.group_state for row in await listed_groups(client, group_type)}
    title = group_type.capitalize()
    deleted, failed = list[str](), dict[str, str]()
    for group in list(there) if options.all_groups else list(dict.fromkeys(options.group)):
        state = there.get(group)
        if state is None:
            failed[group] = f"java.lang.IllegalArgumentException: Group '{group}' {missing}"
        elif state == "Dead":
            failed[group] = f"java.lang.IllegalStateException: {title} group '{group}' group state is DEAD."
        elif state != "Empty":
            failed[group] = f"{java_class(ErrorCode.NON_EMPTY_GROUP)}: {title} group '{group}' is not EMPTY."
        else:
            channel = await connect_to_coordinator(client, group)
            code = (await channel.call(DeleteGroupsRequest([group]))).results[0].error_code
            if code:
                failed[group] = java_text(ProtocolError(ErrorCode(code)))
            else:
                deleted.append(group)
    return deleted, failed


def print_deletion(group_type: str, deleted: Sequence[str], failed: dict[str, str], end: str = "") -> None:
    """Print which groups of a type were deleted, and the errors of the others.

    ``end``: text after the list of deleted groups if others failed.
    """
    shown = ", ".join(f"'{group}'" for group in deleted)
    if not failed:
        print(f"Deletion of requested {group_type} groups ({shown}) was successful.")
        return
    print(f"\nError: Deletion of some {group_type} groups failed:")
    for group, text in failed.items():
        print(f"* Group '{group}' could not be deleted due to: {text}")
    if deleted:
        print(f"\nThese {group_type} groups were deleted successfully: {shown}{end}")
