"""``ottla lag``: print the lag of groups in records, once or repeatedly."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ottla.cli.arguments import command_parser, integer
from ottla.cli.common import add_connection, print_output, run_with_client, unknown_group
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.cli.group_admin.description import describe_group, describe_offsets
from ottla.cli.watching import add_watch_options, check_watch_options, clear_screen, print_repeatedly
from ottla.client.cluster_client import ClusterClient
from ottla.wire.messages.list_groups import ListGroupsRequest

TEXT = """Print the lag of groups: the records between the committed offset of a partition and its end. A partition
without a committed offset has no lag. With --watch, the table is printed repeatedly, on a terminal in place.

examples:
  ottla lag                                        all groups, a row for each topic
  ottla lag billing --partitions
  ottla lag billing --watch                        every two seconds
  ottla lag --watch --interval 10 -o csv >> lag.csv
  ottla lag billing --fail-above 1000              status 1 if the lag of a group is larger
"""


def _parser() -> argparse.ArgumentParser:
    out = command_parser("lag", TEXT)
    add_connection(out)
    out.add_argument("group", nargs="*", help="ids of groups (default: all groups)")
    out.add_argument("--partitions", action="store_true", help="a row for each partition instead of each topic")
    add_watch_options(out)
    text = "end with status 1 if the lag of a group is larger than N records"
    out.add_argument("--fail-above", type=integer(0), metavar="N", help=text)
    return out


async def _group_ids(client: ClusterClient, options: argparse.Namespace) -> list[str]:
    if options.group:
        return list(dict.fromkeys(options.group))
    ids = set[str]()
    for channel in await client.all_brokers():
        answer = await channel.call(ListGroupsRequest())
        raise_for_error(answer.error_code, None, "groups")
        ids |= {group.group_id for group in answer.groups}
    return sorted(ids)


async def _partition_rows(client: ClusterClient, group_id: str, *, is_named: bool) -> list[dict[str, Any]]:
    """Return an output row for each partition of a group: committed offset, end offset, lag in records, and owner.

    Keys: ``group``, ``topic``, ``partition``, ``position`` (in a share group the start offset), ``end``, ``lag`` and
    ``member`` (None in a share group), each as in `describe_offsets`. ``is_named``: the command line names the group.
    Otherwise the group is from a list and may have been deleted meanwhile; it has no rows then.

    Raises:
        CommandFailed: a named group does not exist.
    """
    seen = await describe_group(client, group_id)
    if seen is None:
        if is_named:
            raise unknown_group(group_id)
        return []  # it was deleted in the meantime
    return [
        {
            "group": group_id,
            "topic": row["topic"],
            "partition": row["partition"],
            "position": row.get("position", row.get("start")),
            "end": row["end"],
            "lag": row["lag"],
            "member": row.get("member"),
        }
        for row in await describe_offsets(client, seen)
    ]


def sum_by_topic(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each group and topic: number of its partitions, and sum and maximum of their lags in records.

    Keys: ``group``, ``topic``, ``partitions``, ``lag`` (the sum) and ``largest``. Partitions with unknown lag are not
    summed; sum and maximum are None if no lag is known.
    """
    lags: dict[tuple[str, str], list[int | None]] = {}
    for row in rows:
        lags.setdefault((row["group"], row["topic"]), []).append(row["lag"])
    out = []
    for (group, topic), values in lags.items():
        known = [value for value in values if value is not None]
        lag, largest = (sum(known), max(known)) if known else (None, None)
        out.append({"group": group, "topic": topic, "partitions": len(values), "lag": lag, "largest": largest})
    return out


async def _lag_rows(client: ClusterClient, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for group_id in await _group_ids(client, options):
        rows += await _partition_rows(client, group_id, is_named=bool(options.group))
    return rows


def _check_limit(rows: list[dict[str, Any]], limit: int) -> None:
    """Check that no group has a total lag of more than ``limit`` records; an unknown lag counts as 0.

    Raises:
        CommandFailed: the lag of a group is larger.
    """
    total: dict[str, int] = {}
    for row in rows:
        total[row["group"]] = total.get(row["group"], 0) + (row["lag"] or 0)
    above = [f"{group} {lag}" for group, lag in total.items() if lag > limit]
    if above:
        raise CommandFailed(f"lag above {limit}: {', '.join(above)}")


async def _print(client: ClusterClient, options: argparse.Namespace) -> None:
    rows = await _lag_rows(client, options)
    if options.watch:
        clear_screen(options.output)
    nothing = "no committed offsets" if options.group else "no groups with committed offsets"
    print_output(rows if options.partitions else sum_by_topic(rows), options.output, nothing)
    sys.stdout.flush()
    if options.fail_above is not None:
        _check_limit(rows, options.fail_above)


def run(arguments: list[str]) -> int:
    """Run ``ottla lag`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed, or for a group whose lag, of all partitions together, is above
        ``--fail-above``; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    check_watch_options(parser, options)
    return run_with_client(
        options, lambda client: print_repeatedly(options, "ottla lag", lambda: _print(client, options))
    )
