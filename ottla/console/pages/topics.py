"""Pages of topics: list of topics, and partitions and configuration of one topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.console.offsets import EARLIEST, LATEST, list_offsets
from ottla.console.page import PageRequest, View, check
from ottla.console.paging import paginate
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.image import RESOURCE_TOPIC
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_configs as dcf
from ottla.wire.messages import describe_log_dirs as dld
from ottla.wire.messages.metadata import MetadataResponseTopic

if TYPE_CHECKING:
    from ottla.console.tiering import RemoteTopicState

SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster default (dynamic)",
    4: "broker (file)",
    5: "default",
    6: "broker logger",
}
"""Display name of each source of a configuration (``DescribeConfigsResponse.ConfigSource``)."""


async def find_topic(page: PageRequest, name: str) -> MetadataResponseTopic:
    """Return the metadata of a topic, its partitions sorted by number.

    Raises:
        ProtocolError: the topic does not exist, or the session may not describe it.
    """
    topic = (await page.client.metadata([name])).topics[0]
    check(topic.error_code, f"topic {name} does not exist" if topic.error_code == 3 else None, f"topic {name}")
    topic.partitions.sort(key=lambda row: row.partition_index)
    return topic


async def fetch_log_sizes(page: PageRequest, partitions: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
    """Return the size in bytes of each of the partitions, by topic and number, that has a replica on this node.

    Empty if the session may not describe log directories.
    """
    requested = [dld.DescribableLogDirTopic(topic, list(numbers)) for topic, numbers in partitions.items()]
    channel = await page.client.bootstrap_channel()
    response = await channel.call(dld.DescribeLogDirsRequest(requested))
    return {
        (topic.name, row.partition_index): row.partition_size
        for result in response.results
        for topic in result.topics
        for row in topic.partitions
        if not row.is_future_key
    }


def count_segments(page: PageRequest, topic: str, numbers: Sequence[int]) -> dict[int, int]:
    """Return the number of log segments of each of the partitions of a topic that has a replica on this node.

    Empty if the session may not describe log directories, as for their sizes.
    """
    if not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return {}
    hosted = {number: page.node.components.replica_manager.get(topic, number) for number in numbers}
    return {number: len(replica.log.segments) for number, replica in hosted.items() if replica is not None}


async def fetch_offsets(page: PageRequest, topic: str, numbers: Sequence[int], timestamp: int) -> dict[int, int]:
    """Return the offset of each partition for a timestamp; -1 if no record is that recent.

    ``timestamp`` is `EARLIEST`, `LATEST`, or milliseconds since 1970. Partitions without a leader or with an error are
    left out. The client must have requested the metadata of the topic before.
    """
    found = await list_offsets(page.client, [(topic, number) for number in numbers], timestamp)
    return {number: offset for (_, number), offset in found.items()}


async def get_topics(page: PageRequest) -> View:
    """Return the page with the list of topics whose name contains the query ``q``, in any case; all without ``q``.

    Internal topics are in it only with ``internal=1``. Sizes and rates are those of the replicas on this node.
    """
    wanted = page.fields.get("q", "").strip().lower()
    shows_internal = page.fields.get("internal") == "1"
    every = [topic for topic in (await page.client.metadata(None)).topics if topic.error_code == ErrorCode.NONE]
    found = [t for t in every if wanted in (t.name or "").lower() and (shows_internal or not t.is_internal)]
    found.sort(key=lambda topic: topic.name or "")
    topics, paging = paginate(page, found)
    sizes = await fetch_log_sizes(page, {t.name or "": range(len(t.partitions)) for t in topics})
    traffic = page.node.traffic
    rows = [
        {
            "name": topic.name,
            "is_internal": topic.is_internal,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replica_nodes) for p in topic.partitions), default=0),
            "under_replicated": sum(len(p.isr_nodes) < len(p.replica_nodes) for p in topic.partitions),
            "size": _sum_sizes(sizes, topic),
            "rates": traffic.topic_rates(topic.name or ""),
        }
        for topic in topics
    ]
    values = {"title": "Topics", "rows": rows, "paging": paging, "q": wanted, "internal": shows_internal}
    return View("topics.html", values)


def _sum_sizes(sizes: Mapping[tuple[str, int], int], topic: MetadataResponseTopic) -> int | None:
    found = [sizes.get((topic.name or "", p.partition_index)) for p in topic.partitions]
    known = [size for size in found if size is not None]
    return sum(known) if known else None


async def get_topic_partitions(page: PageRequest) -> View:
    """Return the live block of the page: partitions with leader, ISR, offsets, size, segments and remote part.

    Raises:
        ProtocolError: the topic does not exist, or the session may not describe it.
    """
    name = page.text("name")
    topic = await find_topic(page, name)
    shown, paging = paginate(page, topic.partitions)
    numbers = [row.partition_index for row in shown]
    starts = await fetch_offsets(page, name, numbers, EARLIEST)
    ends = await fetch_offsets(page, name, numbers, LATEST)
    sizes = await fetch_log_sizes(page, {name: numbers})
    segments = count_segments(page, name, numbers)
    rows = [
        {
            "partition": p.partition_index,
            "leader": p.leader_id,
            "replicas": p.replica_nodes,
            "isr": p.isr_nodes,
            "start": starts.get(p.partition_index),
            "end": ends.get(p.partition_index),
            "records": _difference(starts.get(p.partition_index), ends.get(p.partition_index)),
            "size": sizes.get((name, p.partition_index)),
            "segments": segments.get(p.partition_index),
        }
        for p in shown
    ]
    remote = _find_remote_state(page, name, numbers)
    return View("topic.html", {"topic": name, "partitions": rows, "paging": paging, "remote": remote})


def _find_remote_state(page: PageRequest, topic: str, numbers: Sequence[int]) -> RemoteTopicState | None:
    """Return the tiered storage of a topic on this node; None without it, or without DESCRIBE on the cluster."""
    components = page.node.components
    manager = components.remote_log_manager
    if manager is None or not page.client.may(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return None
    # lazy: 0.8 ms, 35 kB: only with tiered storage
    from ottla.console.tiering import describe_remote_topic

    now_ms = page.node.local.env.monotonic_ms()
    return describe_remote_topic(manager, components.replica_manager, topic, numbers, now_ms)


def _difference(start: int | None, end: int | None) -> int | None:
    return None if start is None or end is None else end - start


async def fetch_settings(page: PageRequest, topic: str) -> tuple[list[dict[str, Any]], str]:
    """Return a row for each configuration of a topic, sorted by name, and an error message.

    The message is empty unless the request was refused; then there are no rows. Keys: ``name``, ``value`` (None if it
    is null; a sensitive one is ``(hidden)``), ``source`` (a name of `SOURCES`), ``is_own`` (set for the topic itself),
    and ``documentation``.
    """
    resource = dcf.DescribeConfigsResource(RESOURCE_TOPIC, topic, None)
    request = dcf.DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=True)
    response = await (await page.client.bootstrap_channel()).call(request)
    result = response.results[0]
    if result.error_code:
        return [], result.error_message or ErrorCode(result.error_code).text
    rows = [
        {
            "name": row.name,
            "value": "(hidden)" if row.is_sensitive else row.value,
            "source": SOURCES.get(row.config_source, "unknown"),
            "is_own": row.config_source == 1,
            "documentation": row.documentation or "",
        }
        for row in sorted(result.configs, key=lambda row: row.name)
    ]
    return rows, ""


async def get_topic(page: PageRequest) -> View:
    """Return the page with the partitions and settings of the topic in the field ``name``.

    Raises:
        ProtocolError: the topic does not exist, or the session may not describe it.
    """
    partitions = await get_topic_partitions(page)
    name = page.text("name")
    settings, problem = await fetch_settings(page, name)
    values = {"title": f"Topic {name}", "settings": settings, "settings_problem": problem, **partitions.values}
    return View("topic.html", values)
