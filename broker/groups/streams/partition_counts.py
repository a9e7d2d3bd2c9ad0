"""Numbers of partitions of a Streams application's internal topics.

Unless the application sets it, a repartition topic has as many partitions as the largest source of a subtopology that
writes to it; copartitioned topics have equally many. Changelog topics are decided in `configured_topology`.

Source: ``RepartitionTopics.java``, ``CopartitionedTopicsEnforcer.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from heapq import heappop, heappush

from ottla.broker.groups.java_collections.iteration_order import java_string_sort_key
from ottla.broker.groups.streams.status import StreamsGroupStatus, TopicConfigurationException
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import streams_group_records


class PartitionCounts:
    """Number of partitions by topic: of existing topics by the metadata image, of others as decided so far."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.decided: dict[str, int] = {}

    def get(self, name: str) -> int | None:
        """Return the number of partitions of a topic; None if unknown."""
        topic = self._image.topics.get(name)
        return self.decided.get(name) if topic is None else len(topic.partitions)

    def require(self, name: str) -> int:
        """Return the number of partitions of a topic.

        Raises:
            ProtocolError: UNKNOWN_SERVER_ERROR if it is unknown, as in Kafka.
        """
        count = self.get(name)
        if count is None:
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        return count


def _invalid(why: str) -> ProtocolError:
    return ProtocolError(ErrorCode.STREAMS_INVALID_TOPOLOGY, why)


def repartition_topic_counts(
    rows: Sequence[streams_group_records.Subtopology], counts: PartitionCounts
) -> dict[str, int]:
    """Return the number of partitions of each repartition topic, by name.

    It is set by the application, or that of the largest source of a subtopology that writes to the topic. ``rows``: the
    subtopologies; ``counts``: the known numbers of partitions, which are left unchanged.

    Raises:
        ProtocolError: STREAMS_INVALID_TOPOLOGY: a number cannot be computed.
    """
    out = {
        topic.name: topic.partitions for row in rows for topic in row.repartition_source_topics if topic.partitions != 0
    }
    readers: dict[str, list[int]] = {}
    """Repartition topics with an unknown number of partitions -> indices of the subtopologies that read them."""
    for place, row in enumerate(rows):
        for topic in row.repartition_source_topics:
            if topic.name not in out:
                readers.setdefault(topic.name, []).append(place)
    # Kafka iterates over all of them in rounds until a round has no change: each is processed once, in the round and at
    # the position in which the first of its sources is known.
    due = [(0, place) for place in range(len(rows))]
    done: set[int] = set()
    while due:
        turn, place = heappop(due)
        count = None if place in done else _largest_source(rows[place], out, counts)
        if count is None:
            continue
        done.add(place)
        for sink in rows[place].repartition_sink_topics:
            if sink not in out:
                out[sink] = count
                for reader in readers.pop(sink, ()):
                    heappush(due, (turn + (reader <= place), reader))
    if any(sink not in out for row in rows for sink in row.repartition_sink_topics):
        why = "Failed to compute number of partitions for all repartition topics. "
        raise _invalid(f"{why}There may be loops in the topology that cannot be resolved.")
    if any(topic.name not in out for row in rows for topic in row.repartition_source_topics):
        why = "Failed to compute number of partitions for all repartition topics, because "
        raise _invalid(f"{why}a repartition source topic is never used as a sink topic.")
    return out


def _largest_source(
    row: streams_group_records.Subtopology, out: Mapping[str, int], counts: PartitionCounts
) -> int | None:
    """Return the largest known number of partitions among the sources of a subtopology; None if none is known.

    ``out``: numbers of the repartition topics that are known so far.
    """
    known = [out.get(topic.name) for topic in row.repartition_source_topics]
    known += [counts.get(name) for name in row.source_topics]
    return max((count for count in known if count is not None), default=None)


def enforce_copartitioning(
    group: Set[str], fixed: Mapping[str, int], flexible: Set[str], counts: PartitionCounts
) -> dict[str, int]:
    """Return the number of partitions, equal for all, of the repartition topics in a copartition group, by name.

    ``group``: topics that must have equally many partitions; ``fixed``: repartition topics of the whole topology with a
    number set by the application; ``flexible``: the other repartition topics; ``counts``: the known numbers.

    Raises:
        TopicConfigurationException: the topics cannot be copartitioned.
        ProtocolError: STREAMS_INVALID_TOPOLOGY, UNKNOWN_SERVER_ERROR.
    """
    if not group:
        return {}
    internal = {name: counts.require(name) for name in group if name in fixed or name in flexible}
    others = {name: counts.require(name) for name in group if name not in internal}
    if others:
        wanted = _require_same_count(others, others)
    elif fixed:
        wanted = _require_same_count(fixed, internal)
    else:
        wanted = max(0, *internal.values())
        if wanted == 0:
            raise _invalid(f"All topics in the copartition group had undefined partition number: {sorted(internal)}")
    for name, count in internal.items():
        if name in fixed and count != wanted:
            why = (
                f"Number of partitions [{count}] of repartition topic [{name}] "
                f"doesn't match number of partitions [{wanted}] of the source topic."
            )
            raise TopicConfigurationException(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, why)
    return dict.fromkeys(internal, wanted)


def _require_same_count(topics: Mapping[str, int], shown: Mapping[str, int]) -> int:
    first = next(iter(topics.values()))
    if any(count != first for count in topics.values()):
        order = sorted(shown, key=java_string_sort_key)
        text = ", ".join(f"{name}={shown[name]}" for name in order)
        why = f"Following topics do not have the same number of partitions: [{{{text}}}]"
        raise TopicConfigurationException(StreamsGroupStatus.INCORRECTLY_PARTITIONED_TOPICS, why)
    return first
