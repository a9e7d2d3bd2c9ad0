"""Changes of groups: reset of offsets, deletion. The confirmation page of a reset shows the planned offsets."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.console.offsets import EARLIEST, LATEST, TopicPartitionName, list_offsets
from ottla.console.page import Change, InvalidInput, PageRequest, View, check, confirm_and_execute
from ottla.console.pages.groups import (
    EMPTY_STATES,
    OFFSETS_VERSION_WITH_NAMES,
    SHARE,
    DescribedGroup,
    describe_group,
    fetch_positions,
    find_group_coordinator,
    load_leaders,
)
from ottla.console.pages.topics import find_topic
from ottla.console.rendering import format_count, url
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import alter_share_group_offsets as asg
from ottla.wire.messages import offset_commit
from ottla.wire.messages.delete_groups import DeleteGroupsRequest

TARGETS = ("earliest", "latest", "offset", "shift", "time")
_MAX_SHOWN = 100
_MAX_OFFSET = 2**63 - 1


async def get_offset_reset(page: PageRequest) -> View:
    """Return the page with the form for a reset of a group's offsets.

    Raises:
        ProtocolError: the group does not exist, or the session may not describe it.
    """
    group = await describe_group(page, page.text("id"))
    positions = await fetch_positions(group.channel, group.type, group.id)
    topics = sorted({topic for topic, _ in positions})
    values = {"title": f"Reset offsets of {group.id}", "group": group, "topics": topics}
    return View("offset_reset.html", {**values, "is_empty": group.state in EMPTY_STATES})


async def _select_partitions(
    page: PageRequest, positions: Mapping[TopicPartitionName, int]
) -> list[TopicPartitionName]:
    """Return the partitions that the form selects: of a topic, or else all with a committed offset.

    The client knows their leaders then.

    Raises:
        InvalidInput: the topic has no such partition.
    """
    topic = page.fields.get("topic", "").strip()
    if not topic:
        await load_leaders(page, positions)
        return sorted(positions)
    partitions = [(topic, row.partition_index) for row in (await find_topic(page, topic)).partitions]
    number = page.number("partition", -1, 0, 2**31 - 1)
    chosen = [at for at in partitions if number in (-1, at[1])]
    if not chosen:
        raise InvalidInput(f"partition: topic {topic} has no partition {number}")
    return chosen


async def plan_reset(
    page: PageRequest, positions: Mapping[TopicPartitionName, int], partitions: list[TopicPartitionName]
) -> dict[TopicPartitionName, int]:
    """Return the new offset of each partition, between its log start offset and its end offset.

    Partitions without a leader are left out, and for ``shift`` those without an offset. Nothing is changed.

    Args:
        page: request with the form's target: earliest, latest, offset, shift or time.
        positions: present offsets of the group.
        partitions: partitions to reset.

    Raises:
        InvalidInput: the target is missing or invalid.
    """
    target = page.text("target")
    first = await list_offsets(page.client, partitions, EARLIEST)
    last = await list_offsets(page.client, partitions, LATEST)
    if target == "earliest":
        wanted = first
    elif target == "latest":
        wanted = last
    elif target == "offset":
        offset = page.number("value", -1, 0)
        if offset < 0:
            raise InvalidInput("value: an offset is expected")
        wanted = dict.fromkeys(partitions, offset)
    elif target == "shift":
        step = page.number("value", 0, -_MAX_OFFSET)
        wanted = {at: positions[at] + step for at in partitions if at in positions}
    elif target == "time":
        found = await list_offsets(page.client, partitions, page.number("value", 0))
        wanted = {at: last.get(at, 0) if offset < 0 else offset for at, offset in found.items()}
    else:
        raise InvalidInput(f"target: one of {', '.join(TARGETS)} is expected")
    known = [at for at in partitions if at in wanted and at in first and at in last]
    return {at: max(min(wanted[at], last[at]), first[at]) for at in known}


async def reset_offsets(page: PageRequest) -> View:
    """Set the offsets of a group as the form requests, if it is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: the group has members, or there is no offset to set. ProtocolError: the coordinator refused an
            offset; others may have been set.
    """
    group = await describe_group(page, page.text("id"))
    if group.state not in EMPTY_STATES:
        raise InvalidInput(f"Group {group.id} is {group.state}: stop its members first, as they would commit again.")
    positions = await fetch_positions(group.channel, group.type, group.id)
    planned = await plan_reset(page, positions, await _select_partitions(page, positions))
    if not planned:
        raise InvalidInput("No partition has an offset to set.")

    async def execute() -> str:
        if group.type == SHARE:
            await _alter_share_offsets(group, planned)
        else:
            await _commit(group, planned)
        return f"{format_count(len(planned))} offsets of group {group.id} were set."

    lines = [_describe_move(at, positions.get(at), offset) for at, offset in planned.items()]
    if len(lines) > _MAX_SHOWN:
        lines[_MAX_SHOWN:] = [f"{format_count(len(lines) - _MAX_SHOWN)} partitions more."]
    change = Change(
        f"Reset offsets of group {group.id}", lines, "Set the offsets", execute, url("/group", id=group.id), True
    )
    return await confirm_and_execute(page, change)


def _describe_move(at: TopicPartitionName, before: int | None, after: int) -> str:
    name = f"{at[0]}-{at[1]}"
    if before is None:
        return f"{name}: no offset becomes {after}."
    if after > before:
        return f"{name}: {before} becomes {after}; {format_count(after - before)} offsets are skipped."
    if after < before:
        return f"{name}: {before} becomes {after}; {format_count(before - after)} offsets are read again."
    return f"{name}: {before} stays."


def _numbers_by_topic(planned: Mapping[TopicPartitionName, int]) -> dict[str, dict[int, int]]:
    out: dict[str, dict[int, int]] = {}
    for (topic, number), offset in planned.items():
        out.setdefault(topic, {})[number] = offset
    return out


async def _commit(group: DescribedGroup, planned: Mapping[TopicPartitionName, int]) -> None:
    topics = [
        offset_commit.OffsetCommitRequestTopic(
            topic,
            partitions=[offset_commit.OffsetCommitRequestPartition(number, offset) for number, offset in rows.items()],
        )
        for topic, rows in _numbers_by_topic(planned).items()
    ]
    version = group.channel.version_for(ApiKey.OFFSET_COMMIT, OFFSETS_VERSION_WITH_NAMES)
    response = await group.channel.call(offset_commit.OffsetCommitRequest(group.id, topics=topics), version)
    for topic in response.topics:
        for row in topic.partitions:
            check(row.error_code, None, f"group {group.id}: {topic.name}-{row.partition_index}")


async def _alter_share_offsets(group: DescribedGroup, planned: Mapping[TopicPartitionName, int]) -> None:
    topics = [
        asg.AlterShareGroupOffsetsRequestTopic(
            topic, [asg.AlterShareGroupOffsetsRequestPartition(number, offset) for number, offset in rows.items()]
        )
        for topic, rows in _numbers_by_topic(planned).items()
    ]
    response = await group.channel.call(asg.AlterShareGroupOffsetsRequest(group.id, topics))
    check(response.error_code, response.error_message, f"group {group.id}")
    for topic in response.responses:
        for row in topic.partitions:
            check(row.error_code, row.error_message, f"group {group.id}: {topic.topic_name}-{row.partition_index}")


async def delete_group(page: PageRequest) -> View:
    """Delete the group of the form, if it is confirmed; else return the confirmation page.

    Raises:
        ProtocolError: the coordinator refused it, such as for a group with members.
    """
    group = await describe_group(page, page.text("id"))
    positions = await fetch_positions(group.channel, group.type, group.id)

    async def execute() -> str:
        _, channel = await find_group_coordinator(page, group.id)
        check((await channel.call(DeleteGroupsRequest([group.id]))).results[0].error_code, None, f"group {group.id}")
        return f"Group {group.id} was deleted."

    lost = [f"The group and its offsets in {format_count(len(positions))} partitions are lost for good."]
    change = Change(f"Delete group {group.id}", lost, "Delete the group", execute, "/groups", is_destructive=True)
    return await confirm_and_execute(page, change)
