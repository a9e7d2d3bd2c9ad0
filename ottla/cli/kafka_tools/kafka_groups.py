"""``ottla kafka-groups``: the tool ``kafka-groups.sh``, which lists the groups of all types.

Source: ``GroupsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse

from ottla.cli.kafka_tools.text_tables import padded, widest
from ottla.cli.kafka_tools.tool_options import FailureFormat, ToolOptions, has, raise_for, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.wire.messages import list_groups

TEXT = "This tool helps to list groups of all types."
FAILURES = FailureFormat("Error while executing groups command : ")
TYPES = ("classic", "consumer", "share", "streams")
FILTERS = ("consumer", "share", "streams")


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-groups", TEXT)
    out.connection()
    out.flag("list", "List the groups.")
    out.option("group-type", f"Filter the groups based on group type: {', '.join(TYPES)}.")
    out.option("protocol", "Filter the groups based on protocol type.")
    out.flag("consumer", "All kinds of consumer groups, including classic and simple consumer groups.")
    out.flag("share", "Share groups.")
    out.flag("streams", "Streams groups.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    if not options.bootstrap_server:
        parser.fail_with_usage("Missing required option(s) [bootstrap-server]")
    if not options.list:
        parser.fail_with_usage("Command must include exactly one action: --list.")
    if options.group_type is not None and options.group_type.lower() not in TYPES:
        parser.error("--group-type must be a valid group type.")
    for name in FILTERS:
        parser.exclude(options, name, *(x for x in ("consumer", "group-type", "protocol", *FILTERS) if x != name))


def _is_chosen(row: list_groups.ListedGroup, options: argparse.Namespace) -> bool:
    if has(options, "group-type"):
        wanted = options.protocol if options.protocol is not None else row.protocol_type
        return row.group_type.lower() == options.group_type.lower() and row.protocol_type == wanted
    if options.protocol is not None:
        return bool(row.protocol_type == options.protocol)
    if options.consumer:
        return row.protocol_type in ("consumer", "") or row.group_type.lower() == "consumer"
    if options.share:
        return row.group_type.lower() == "share"
    return not options.streams or row.group_type.lower() == "streams"


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    rows = []
    for channel in await client.all_brokers():
        answer = await channel.call(list_groups.ListGroupsRequest())
        raise_for(answer.error_code, None)
        rows += [row for row in answer.groups if _is_chosen(row, options)]
    cells = [[row.group_id, row.group_type.capitalize(), row.protocol_type] for row in rows]
    width = widest(20, [cell for row in cells for cell in row])
    print(padded([width] * 3, ["GROUP", "TYPE", "PROTOCOL"]))
    for row in sorted(cells):
        print(padded([width] * 3, row) + " ")


def run(arguments: list[str]) -> int:
    """Run ``kafka-groups``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    return run_tool(options, lambda client: _list(client, options), FAILURES)
