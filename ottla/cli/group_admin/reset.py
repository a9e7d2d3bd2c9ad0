"""``ottla group reset``: plan new offsets of a group, and set them with ``--execute``; deletion of internal topics.

Source: ``OffsetsUtils.java``, ``ConsumerGroupCommand.java``, ``ShareGroupCommand.java``, ``StreamsGroupCommand.java``
(apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.arguments import MAX_INT64, integer
from ottla.cli.common import connect_to_coordinator
from ottla.cli.errors import CommandFailed, raise_for_error
from ottla.cli.group_admin.description import (
    INACTIVE,
    SHARE,
    STREAMS,
    GroupDescription,
    describe_group,
    describe_topology,
)
from ottla.cli.group_admin.offsets import (
    EARLIEST,
    LAST_VERSION_WITH_NAMES,
    LATEST,
    MIN_TIMESTAMP,
    TopicPartitionKey,
    fetch_committed_offsets,
    group_by_topic,
    list_offsets,
    parse_partitions,
    resolve_partitions,
)
from ottla.cli.group_admin.share_offsets import start_offsets
from ottla.cli.times import datetime_ms
from ottla.client.cluster_client import ClusterClient
from ottla.controller.config.java_duration import BY_DURATION, by_duration_ms
from ottla.runtime import blocking_env
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TIMESTAMP_MODES = ("to_datetime", "by_duration")
SHARE_GROUP_MODES = ("to_earliest", "to_latest", "to_datetime")
_INTERNAL = re.compile(
    r".+-(changelog|repartition|subscription-(registration|response)-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-[0-9]+-topic"
)
OffsetLookup = Callable[[Iterable[TopicPartitionKey], int], Awaitable[dict[TopicPartitionKey, int]]]
"""Function that returns the offset of each partition for a timestamp, and fails if one is missing."""
ClampReport = Callable[[TopicPartitionKey, int, int], None]
"""Function called with a partition, the offset that is out of its range, and the offset that is used instead."""


class ResetTarget(NamedTuple):
    """Target of an offset reset: the option's name, such as ``to_offset``, and its value; True for a flag.

    The value of ``from_file`` is the path, but for `target_offsets` and `plan_reset` the offsets of the group in it.
    """

    mode: str
    value: Any = True


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of an offset reset's target, exactly one of which is required."""
    to = parser.add_argument_group("target (one of these)").add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="log start offset")
    to.add_argument("--to-latest", action="store_true", help="log end offset")
    to.add_argument("--to-current", action="store_true", help="committed offset; log end offset where there is none")
    to.add_argument("--to-offset", type=integer(0, MAX_INT64), metavar="N", help="this offset")
    to.add_argument(
        "--shift-by",
        type=integer(-MAX_INT64, MAX_INT64),
        metavar="N",
        help="committed offset plus N; N may be negative",
    )
    text = "first record that is not older (default time zone: UTC)"
    to.add_argument("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss", help=text)
    to.add_argument("--by-duration", metavar="PnDTnHnMnS", help="first record that is not older than this duration")
    to.add_argument("--from-file", metavar="FILE", help="offsets from lines of [GROUP,]TOPIC,PARTITION,OFFSET")


def parse_target(options: argparse.Namespace) -> ResetTarget:
    """Return the target that the options of `add_target_options` name."""
    modes = ("to_earliest", "to_latest", "to_current", "to_offset", "shift_by", *TIMESTAMP_MODES, "from_file")
    values = {name: getattr(options, name) for name in modes}
    return next(ResetTarget(name, value) for name, value in values.items() if value is not None and value is not False)


def duration_ago_ms(text: str, now_ms: int) -> int:
    """Return ``now_ms`` minus an ISO 8601 duration, in milliseconds since 1970; negative for a time before.

    Raises:
        CommandFailed: the text is not a duration, or is a negative one.
    """
    back_ms = by_duration_ms(BY_DURATION + text)
    if back_ms is None:
        raise CommandFailed(f"duration expected, such as P1DT2H30M: {text}")
    return now_ms - back_ms


def load_offsets_file(path: str, groups: Sequence[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """Return the offsets in a CSV file by group, and of each group by topic and partition.

    ``groups``: the groups of the command; if it is one, lines without a group are its offsets.

    Raises:
        CommandFailed: the file cannot be read or is malformed.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return parse_offsets_file(file.read(), groups)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except UnicodeError:
        raise CommandFailed(f"{path}: not UTF-8") from None


def parse_offsets_file(text: str, groups: Sequence[str]) -> dict[str, dict[TopicPartitionKey, int]]:
    """Parse lines ``GROUP,TOPIC,PARTITION,OFFSET`` into offsets by group, and of each group by topic and partition.

    ``groups``: the groups of the command; if it is one, a line may leave out ``GROUP``. Other groups are accepted, as
    are negative offsets; of several lines for a partition the last one counts.

    Raises:
        CommandFailed: a line has another form.
    """
    out: dict[str, dict[TopicPartitionKey, int]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if len(cells) == 3 and len(groups) == 1:
            cells = [groups[0], *cells]
        if len(cells) != 4 or not cells[2].isdecimal() or not cells[3].removeprefix("-").isdecimal():
            form = f"{'' if len(groups) == 1 else 'GROUP,'}TOPIC,PARTITION,OFFSET"
            raise CommandFailed(f"{form} expected: {line}")
        out.setdefault(cells[0], {})[cells[1], int(cells[2])] = int(cells[3])
    return out


async def target_offsets(
    look: OffsetLookup,
    to: ResetTarget,
    partitions: Sequence[TopicPartitionKey],
    have: Mapping[TopicPartitionKey, int],
    now_ms: int,
    on_clamp: ClampReport | None = None,
) -> dict[TopicPartitionKey, int]:
    """Return the new offset of each partition; nothing is committed.

    Args:
        look: looks up offsets by timestamp.
        to: target of the reset.
        partitions: partitions to reset; not used for an offsets file, which names the partitions.
        have: present committed or start offset of each partition that has one.
        now_ms: current time in milliseconds since 1970.
        on_clamp: called for each offset that is out of range; None prints a line on standard error.

    Raises:
        CommandFailed: a time or duration is malformed, or the time is before 1970; a partition to shift has no present
            offset; or ``look`` failed.
    """
    match to.mode:
        case "to_earliest":
            return await look(partitions, EARLIEST)
        case "to_latest":
            return await look(partitions, LATEST)
        case "to_current":
            known = {at: have[at] for at in partitions if at in have}
            return {**known, **await look([at for at in partitions if at not in have], LATEST)}
        case "to_datetime" | "by_duration":
            time_ms = datetime_ms(to.value) if to.mode == "to_datetime" else duration_ago_ms(to.value, now_ms)
            if time_ms < MIN_TIMESTAMP:
                raise CommandFailed(f"{to.value}: brokers find no records by a timestamp before 1970")
            found = await look(partitions, time_ms)
            late = [at for at, offset in found.items() if offset < 0]
            return {**found, **await look(late, LATEST)}
        case "to_offset":
            return await _clamp(look, dict.fromkeys(partitions, to.value), on_clamp)
        case "shift_by":
            nowhere = [at for at in partitions if at not in have]
            if nowhere:
                raise CommandFailed(f"{nowhere[0][0]}-{nowhere[0][1]} has no committed offset to shift")
            return await _clamp(look, {at: have[at] + to.value for at in partitions}, on_clamp)
        case _:
            return await _clamp(look, to.value, on_clamp)


def _print_clamped(at: TopicPartitionKey, offset: int, clamped: int) -> None:
    print(f"ottla group: {at[0]}-{at[1]} offset {offset} is out of range: using {clamped}", file=sys.stderr)


async def _clamp(
    look: OffsetLookup, offsets: Mapping[TopicPartitionKey, int], on_clamp: ClampReport | None
) -> dict[TopicPartitionKey, int]:
    """Return offsets limited to the range from log start offset to log end offset, both included.

    ``look`` looks up these offsets. Each changed offset is reported to ``on_clamp``, or on standard error if that is
    None.

    Raises:
        CommandFailed: a partition has no leader.
    """
    first, last = await look(offsets, EARLIEST), await look(offsets, LATEST)
    out = {at: max(min(offset, last[at]), first[at]) for at, offset in offsets.items()}
    for at, offset in offsets.items():
        if out[at] != offset:
            (on_clamp or _print_clamped)(at, offset, out[at])
    return out


def _source_topics(seen: GroupDescription) -> set[str]:
    """Return the source and repartition topics of a streams group."""
    return {name for row in describe_topology(seen) for name in (*row["reads"], *row["repartition"])}


async def _positions(
    seen: GroupDescription | None, client: ClusterClient, group_id: str
) -> dict[TopicPartitionKey, int]:
    if seen is not None and seen.group_type == SHARE:
        return await start_offsets(seen)
    channel = seen.channel if seen is not None else await connect_to_coordinator(client, group_id)
    stored = await fetch_committed_offsets(channel, group_id)
    if seen is not None and seen.group_type == STREAMS:
        reads = _source_topics(seen)
        stored = {at: offset for at, offset in stored.items() if at[0] in reads}
    return stored


async def _selected_partitions(
    client: ClusterClient,
    options: argparse.Namespace,
    seen: GroupDescription | None,
    to: ResetTarget,
    have: Mapping[TopicPartitionKey, int],
) -> list[TopicPartitionKey]:
    """Return the partitions to reset: the partitions in the file or of ``--topic``, or all in ``have``.

    Args:
        client: client of the cluster.
        options: parsed arguments of ``ottla group reset``.
        seen: description of the group; None if it does not exist.
        to: target of the reset.
        have: present offsets of the group.

    Raises:
        CommandFailed: the options select no partitions, or a topic does not exist or is not read by the streams group.
    """
    if to.mode == "from_file":
        there = await resolve_partitions(client, sorted({topic for topic, _ in to.value}))
        return parse_partitions([f"{topic}:{number}" for topic, number in to.value], _numbers(there))
    if options.all_topics or not options.topic:
        if not options.all_topics and (seen is None or seen.group_type != SHARE):
            raise CommandFailed("--all-topics or --topic expected")
        return sorted(have)
    places = await resolve_partitions(client, options.topic)
    if seen is not None and seen.group_type == STREAMS and any(at not in have for at in places):
        raise CommandFailed(f"{seen.id} is not subscribed to all of these topics")
    return places


def _numbers(places: Iterable[TopicPartitionKey]) -> dict[str, list[int]]:
    out: dict[str, list[int]] = {}
    for topic, number in places:
        out.setdefault(topic, []).append(number)
    return out


async def plan_reset(
    client: ClusterClient, options: argparse.Namespace, group_id: str, to: ResetTarget
) -> list[dict[str, Any]]:
    """Compute new offsets of a group, and commit them if ``--execute`` is set.

    Returns:
        An output row for each partition that is reset, with the keys ``group``, ``topic``, ``partition``, ``position``
        (present committed offset, in a share group start offset; None without one) and ``new``.

    Raises:
        CommandFailed: the group has members, also without ``--execute``; options or target are invalid; a partition
            has no leader; or the coordinator refused an offset: those of other partitions may be committed then.
    """
    seen = await describe_group(client, group_id)
    if seen is not None and seen.state not in INACTIVE:
        raise CommandFailed(f"{group_id} is {seen.state}: it can be reset only while it has no members")
    shares = options.share if seen is None else seen.group_type == SHARE
    if shares and to.mode not in SHARE_GROUP_MODES:
        raise CommandFailed(f"{group_id} is a share group: the target can be the earliest, the latest, or a time")
    have = await _positions(seen, client, group_id)
    wanted = await _selected_partitions(client, options, seen, to, have)

    async def look(places: Iterable[TopicPartitionKey], timestamp: int) -> dict[TopicPartitionKey, int]:
        found = await list_offsets(client, places, timestamp)
        missing = [at for at in places if at not in found]
        if missing:
            raise CommandFailed(f"{missing[0][0]}-{missing[0][1]} has no leader, or does not exist")
        return found

    new = await target_offsets(look, to, wanted, have, blocking_env.BlockingEnv().now_ms())
    if options.execute and new:
        await (_alter_share_offsets if shares else commit_offsets)(client, group_id, new)
    return [
        {"group": group_id, "topic": at[0], "partition": at[1], "position": have.get(at), "new": new[at]}
        for at in sorted(new)
    ]


async def commit_offsets(client: ClusterClient, group_id: str, new: Mapping[TopicPartitionKey, int]) -> None:
    """Commit the offsets ``new`` of a group without members (not a share group) at its coordinator.

    Raises:
        CommandFailed: the coordinator refused an offset; those of other partitions may be committed.
    """
    topics = [
        OffsetCommitRequestTopic(
            topic, partitions=[OffsetCommitRequestPartition(number, offset) for number, offset in rows.items()]
        )
        for topic, rows in group_by_topic(new).items()
    ]
    channel = await connect_to_coordinator(client, group_id)
    version = channel.version_for(ApiKey.OFFSET_COMMIT, LAST_VERSION_WITH_NAMES)
    answer = await channel.call(OffsetCommitRequest(group_id, topics=topics), version)
    for topic in answer.topics:
        for row in topic.partitions:
            raise_for_error(row.error_code, None, f"{group_id}: {topic.name}-{row.partition_index}")


async def _alter_share_offsets(client: ClusterClient, group_id: str, new: Mapping[TopicPartitionKey, int]) -> None:
    topics = [
        AlterShareGroupOffsetsRequestTopic(
            topic, [AlterShareGroupOffsetsRequestPartition(number, offset) for number, offset in rows.items()]
        )
        for topic, rows in group_by_topic(new).items()
    ]
    answer = await (await connect_to_coordinator(client, group_id)).call(
        AlterShareGroupOffsetsRequest(group_id, topics)
    )
    raise_for_error(answer.error_code, answer.error_message, group_id)
    for topic in answer.responses:
        for row in topic.partitions:
            raise_for_error(row.error_code, row.error_message, f"{group_id}: {topic.topic_name}-{row.partition_index}")


def internal_topics(group: GroupDescription) -> list[str]:
    """Return the sorted names of the internal topics (repartition, changelog, join) in a streams group's topology.

    They are recognized by their names; topics that a subtopology reads as source topics are left out.
    """
    rows = describe_topology(group)
    read = {name for row in rows for name in row["reads"]}
    made = {name for row in rows for name in (*row["repartition"], *row["changelogs"])} - read
    return sorted(x for x in made if x.startswith(f"{group.id}-") and _INTERNAL.fullmatch(x))


async def delete_topics(client: ClusterClient, names: Sequence[str]) -> None:
    """Delete internal topics of a streams group in one request; an absent topic is not an error.

    Raises:
        CommandFailed: the cluster refused to delete topics; the message has the first, those not refused are deleted.
    """
    if not names:
        return
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=30_000)
    for row in (await (await client.bootstrap_channel()).call(request, 6)).responses:
        if row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for_error(row.error_code, row.error_message, row.name or "")
