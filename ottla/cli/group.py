"""``ottla group``: consumer groups of any Kafka: list, describe, lag."""

from __future__ import annotations

import argparse

from ottla.cli.common import add_connection, check, command_parser, coordinator, show, talk
from ottla.peers.client import ClusterClient
from ottla.wire.apis import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_groups as dg
from ottla.wire.messages import list_groups as lg
from ottla.wire.messages import offset_fetch as of

TEXT = """A consumer group shares the partitions of its topics among its members and stores how far it has read.

examples:
  ottla group list
  ottla group describe billing          positions and lag of each partition, and the members
"""


def _parser() -> argparse.ArgumentParser:
    out = command_parser("group", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (("list", "groups and their state"), ("describe", "positions, lag and members of a group")):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        if name == "describe":
            verb.add_argument("group", help="the group's id")
    return out


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    rows = []
    for connection in await client.everyone():
        answer = await connection.call(lg.ListGroupsRequest())
        check(answer.error_code, None, "groups")
        rows += [
            {"group": g.group_id, "state": g.group_state, "type": g.group_type, "protocol": g.protocol_type}
            for g in answer.groups
        ]
    show(sorted(rows, key=lambda row: str(row["group"])), options.output)


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    connection = await coordinator(client, options.group)
    group = (await connection.call(dg.DescribeGroupsRequest([options.group]))).groups[0]
    if group.error_code not in (0, ErrorCode.GROUP_ID_NOT_FOUND):
        check(group.error_code, group.error_message, options.group)
    wanted = of.OffsetFetchRequestGroup(options.group, topics=None)
    version = connection.version_for(ApiKey.OFFSET_FETCH, 9)
    stored = (await connection.call(of.OffsetFetchRequest(groups=[wanted]), version)).groups[0]
    check(stored.error_code, None, options.group)
    rows = []
    for topic in sorted(stored.topics, key=lambda t: t.name):
        for p in sorted(topic.partitions, key=lambda p: p.partition_index):
            end = await client.offset(topic.name, p.partition_index, -1)
            rows.append(
                {
                    "topic": topic.name,
                    "partition": p.partition_index,
                    "position": p.committed_offset,
                    "end": end,
                    "lag": end - p.committed_offset,
                }
            )
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND and not rows:
        check(group.error_code, group.error_message, options.group)
    members = [{"member": m.member_id, "client": m.client_id, "host": m.client_host} for m in group.members]
    if options.output == "json":
        show([{"group": options.group, "state": group.group_state, "members": members, "positions": rows}], "json")
        return
    print(f"{options.group}: {group.group_state}, {len(members)} members")
    show(rows, "text")
    show(members, "text")


def run(arguments: list[str]) -> int:
    """Run a verb; gives the exit status."""
    options = _parser().parse_args(arguments)
    verb = _list if options.verb == "list" else _describe

    async def work(client: ClusterClient) -> None:
        await verb(client, options)

    return talk(options.bootstrap, work, options.command_config)
