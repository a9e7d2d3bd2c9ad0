"""Election of preferred leaders: the first replica of a partition becomes its leader where it is in the ISR."""

from __future__ import annotations

from ottla.console.page import Change, InvalidInput, PageRequest, View, check, confirm_and_execute
from ottla.console.rendering import format_count
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import elect_leaders
from ottla.wire.messages.metadata import MetadataResponsePartition

PREFERRED = 0
_MAX_SHOWN = 100
MAX_ELECTED = 5_000
"""Partitions of one request."""


def needs_election(partition: MetadataResponsePartition) -> bool:
    """Return True if the first replica is in the ISR and not the leader."""
    first = partition.replica_nodes[0] if partition.replica_nodes else -1
    return first != partition.leader_id and first in partition.isr_nodes


async def elect_preferred_leaders(page: PageRequest) -> View:
    """Elect the preferred leaders of partitions, if the form is confirmed; else return the confirmation page.

    These are the first `MAX_ELECTED` partitions whose preferred leader is in the ISR and does not lead.

    Raises:
        InvalidInput: no partition needs an election. ProtocolError: an election failed; others may have succeeded.
    """
    found = [
        (topic.name or "", partition)
        for topic in (await page.client.metadata(None)).topics
        for partition in topic.partitions
        if needs_election(partition)
    ]
    found = sorted(found, key=lambda each: (each[0], each[1].partition_index))[:MAX_ELECTED]
    if not found:
        raise InvalidInput("Each partition has its preferred leader, or that replica is not in sync.")
    wanted: dict[str, list[int]] = {}
    for topic, partition in found:
        wanted.setdefault(topic, []).append(partition.partition_index)

    async def execute() -> str:
        topics = [elect_leaders.TopicPartitions(topic, numbers) for topic, numbers in wanted.items()]
        response = await page.client.call(elect_leaders.ElectLeadersRequest(PREFERRED, topics))
        check(response.error_code, None, "elections")
        for result in response.replica_election_results:
            for row in result.partition_result:
                if row.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                    check(row.error_code, row.error_message, f"{result.topic}-{row.partition_id}")
        return f"The leaders of {format_count(len(found))} partitions were elected."

    lines = [
        f"{topic}-{each.partition_index}: broker {each.replica_nodes[0]} becomes leader instead of "
        f"{'none' if each.leader_id < 0 else each.leader_id}."
        for topic, each in found[:_MAX_SHOWN]
    ]
    if len(found) > _MAX_SHOWN:
        lines.append(f"{format_count(len(found) - _MAX_SHOWN)} partitions more.")
    lines.append("Clients of these partitions change to the new leaders; no record is lost.")
    change = Change("Elect preferred leaders", lines, "Elect the leaders", execute, "/cluster")
    return await confirm_and_execute(page, change)
