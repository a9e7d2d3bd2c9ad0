"""Live block of the newest records of a topic, which follows its partitions instead of reading them again."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from ottla.console.leader_polls import TailPolls
from ottla.console.offsets import LATEST, list_offsets
from ottla.console.page import InvalidInput, PageRequest, View
from ottla.console.pages.records import (
    DEFAULT_SHOWN,
    MAX_SHOWN,
    describe_records,
    find_ranges,
    find_records,
    link_to_rest,
    parse_criteria,
)
from ottla.console.pages.topics import find_topic
from ottla.console.record_scan import RecordScan, ScanRange
from ottla.console.record_tail import MAX_NEWEST, RecordTail
from ottla.controller.metadata.image import NO_LEADER
from ottla.wire.errors import ErrorCode, ProtocolError

WAIT_MS = 2000.0
"""Longest wait for new records before the offsets are requested, as after a change of a partition's leader.

Also the longest wait of a request to another broker.
"""
_MAX_WATCHED = 100
"""Partitions of a topic that a page waits for; the offsets of more are requested instead."""


async def wait_for_records(page: PageRequest) -> None:
    """Wait until a partition of the page's tail has records that were not read, at most `WAIT_MS`.

    The leaders of partitions elsewhere are polled. Returns at once before the first update, and for a tail of more than
    `_MAX_WATCHED` partitions.
    """
    tail: RecordTail | None = page.memory.get("tail")
    if tail is None:
        return
    if len(tail.positions) > _MAX_WATCHED:
        if "polls" in page.memory:
            page.memory["polls"].start({})  # partitions were added to the topic
        return
    topic, components = page.text("name"), page.node.components
    hosted = [(components.replica_manager.get(topic, number), number) for number in tail.positions]
    led = [(replica, number) for replica, number in hosted if replica is not None and replica.is_leader]
    polls = _poll_leaders(page, tail, {number for _, number in led})

    def has_changed(key: Hashable = None) -> bool:
        return key is polls or any(replica.log.high_watermark != tail.positions[number] for replica, number in led)

    # A new leader's high watermark may be below the tail's position, where nothing can be read yet.
    if not any(replica.log.high_watermark > tail.positions[number] for replica, number in led):
        keys = [polls, *(("fetch", topic, number) for _, number in led)]
        await components.services.purgatory.wait_for_change(keys, has_changed, WAIT_MS)


def _poll_leaders(page: PageRequest, tail: RecordTail, led: Collection[int]) -> TailPolls:
    """Poll the leaders of the tail's partitions without those that this node leads; return the polls of the page."""
    topic, memory, node_id = page.text("name"), page.memory, page.node.local.node_id
    polls: TailPolls | None = memory.get("polls")
    if polls is None:
        polls = TailPolls(page.node.leader_polls, page.client, topic, WAIT_MS)
        memory.update(polls=polls, close=polls.close)
    found = page.node.components.replica_manager.image.topics.get(topic)
    elsewhere: dict[int, dict[int, int]] = {}
    for number, position in tail.positions.items():
        partition = None if number in led or found is None else found.partitions.get(number)
        if partition is not None and partition.leader not in (NO_LEADER, node_id):
            elsewhere.setdefault(partition.leader, {})[number] = position
    polls.start(elsewhere)
    return polls


async def get_newest_records(page: PageRequest) -> View:
    """Return the live block with the newest records, or that of the last call if no record came or was deleted.

    The list starts again if the topic was created again or has more partitions.

    Raises:
        InvalidInput: the query does not start at the newest records.
    """
    if page.fields.get("from", "newest") != "newest":
        raise InvalidInput("only the newest records are updated")
    memory, topic, identity = page.memory, page.text("name"), _topic_identity(page)
    if "tail" in memory and memory["topic"] == identity:
        try:
            ranges = await _new_ranges(page, memory["tail"])
            if ranges is not None:
                return await _update(page, ranges)
        except ProtocolError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise  # else records were deleted that were not read: start again
    limit = page.number("limit", DEFAULT_SHOWN, 1, MAX_SHOWN)
    ranges = await find_ranges(page, topic, limit)
    memory.update(tail=RecordTail(limit, ranges), topic=identity, opened_ms=page.node.local.env.now_ms())
    memory.pop("view", None)
    return await _update(page, ranges)


def _topic_identity(page: PageRequest) -> tuple[bytes, int] | None:
    """Return id and number of partitions of the page's topic in the newest image; None if it does not exist there."""
    topic = page.node.components.replica_manager.image.topics.get(page.text("name"))
    return None if topic is None else (topic.id, len(topic.partitions))


async def _new_ranges(page: PageRequest, tail: RecordTail) -> list[ScanRange] | None:
    """Return the ranges of new records; those of partitions without a leader are left out until they have one.

    None: a partition has a leader now that had none when the tail was opened.
    """
    topic, selected = page.text("name"), page.number("partition", -1, 0, 2**31 - 1)
    image = page.node.components.replica_manager.image.topics.get(topic)
    numbers = [selected] if selected >= 0 else list(tail.positions if image is None else image.partitions)
    partitions = [(topic, number) for number in numbers]
    ends = await list_offsets(page.client, partitions, LATEST)
    if len(ends) < len(partitions):
        await find_topic(page, topic)  # leaders have changed
        ends = await list_offsets(page.client, partitions, LATEST)
    if any(number not in tail.positions for _, number in ends):
        return None
    return tail.next_ranges({number: end for (_, number), end in ends.items()})


def _local_log_start_offsets(page: PageRequest, tail: RecordTail) -> dict[int, int]:
    """Return the log start offset of each partition in the tail that has a replica on this node."""
    manager, topic = page.node.components.replica_manager, page.text("name")
    replicas = {number: manager.get(topic, number) for number in tail.positions}
    return {number: replica.log.log_start_offset for number, replica in replicas.items() if replica is not None}


async def _update(page: PageRequest, ranges: list[ScanRange]) -> View:
    """Read ranges of new records and return the block with them; that of the last call if no row comes or goes."""
    tail: RecordTail = page.memory["tail"]
    view: View | None = page.memory.get("view")
    tail.drop_deleted(_local_log_start_offsets(page, tail))
    if not ranges and view is not None and len(tail.listed) == len(view.values["rows"]):
        return view
    topic, skipped = page.text("name"), 0 if view is None else view.values["skipped"]
    scan = RecordScan(page.node.local.env, page.client, topic, ranges, parse_criteria(page))
    chosen = tail.choose(await find_records(page, topic, scan, MAX_NEWEST + len(ranges)))
    rows = await describe_records(page, topic, chosen)
    tail.advance(ranges, scan.ranges, scan.scanned)
    tail.drop_deleted(scan.log_start_offsets)
    tail.add(chosen, rows)
    values = {
        "rows": tail.listed,
        "scanned": tail.scanned,
        "skipped": tail.skipped,
        "opened_ms": page.memory["opened_ms"],
        "problems": scan.problems[:20],
        "following": link_to_rest(page, scan),
    }
    page.memory["view"] = view = View("records.html", values, is_flooded=tail.skipped > skipped)
    return view
