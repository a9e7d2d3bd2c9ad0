"""Topic metadata for consumer, share and streams groups: ids, partition counts, and the metadata hash of KIP-1101.

Source: ``Utils.computeTopicHash``, ``Utils.computeGroupHash`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Generator, Iterable, Mapping, Set

from xxhash import xxh3_64_intdigest

from ottla.broker.groups.java_collections import iteration_order
from ottla.controller.metadata.image import MetadataImage, TopicImage

_LONG = struct.Struct("<q")
_INT = struct.Struct("<i")


def _hash(raw: bytes) -> int:
    """Return the 64-bit XXH3 hash of bytes as a signed integer."""
    value = xxh3_64_intdigest(raw)
    return value - (1 << 64) if value >> 63 else value


def _text(text: str) -> bytes:
    """Return the form in which a string is hashed: its UTF-16 code units (little endian), followed by their number."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return raw + _INT.pack(len(raw) // 2)


def topic_hash(topic: TopicImage, image: MetadataImage) -> int:
    """Return Kafka's hash of a topic (``Utils.computeTopicHash``) as a signed 64-bit integer.

    It covers name, id, partitions, and racks of the replicas.
    """
    count = len(topic.partitions)
    parts = [b"\x00", topic.id[7::-1], topic.id[:7:-1], _text(topic.name)]
    racks = {number: broker.rack for number, broker in image.brokers.items() if broker.rack is not None}
    if not racks:
        parts.append(struct.pack(f"<{count + 1}i", count, *range(count)))
        return _hash(b"".join(parts))
    parts.append(_INT.pack(count))
    placed: dict[tuple[int, ...], bytes] = {(): b""}
    for number in range(count):
        partition = topic.partitions.get(number)
        replicas = partition.replicas if partition is not None else ()
        if replicas not in placed:
            texts = map(_text, sorted(racks[i] for i in replicas if i in racks))
            placed[replicas] = b"".join(text[-4:] + text for text in texts)
        parts += (_INT.pack(number), placed[replicas])
    return _hash(b"".join(parts))


MAX_HASHED_PER_SLICE = 500
"""Topics that are hashed in one time slice (fewer where they have many partitions): a member may subscribe to very many
topics without a known hash.
"""
HASHING_WORK = MAX_HASHED_PER_SLICE + 1
"""Work of a continuation that computes topic hashes: more than a time slice, so that it never runs at once."""
_PARTITIONS_PER_WORK_UNIT = 8
"""Number of partitions that cost as much work as one topic."""


def _hashing_work(topic: TopicImage) -> int:
    return 1 + len(topic.partitions) // _PARTITIONS_PER_WORK_UNIT


class GroupTopicMetadata:
    """Metadata image of a shard, with a cache of topic hashes that is invalidated as topics change."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.last_new_topic_offset = image.offset
        """Metadata offset of the last image that created a topic."""
        self._hashes: dict[str, int] = {}
        self._name_hashes: dict[str, int] = {}
        """Java hash codes of topic names: the cache of `iteration_order.string_hash` is too small for a large cluster.
        """

    def on_metadata_changed(self, image: MetadataImage, touched: Iterable[str], *, has_new: bool) -> None:
        """Replace the image and drop the cached hashes of the topics in ``touched``.

        ``has_new``: topics were created.
        """
        self.image = image
        if has_new:
            self.last_new_topic_offset = image.offset
        for name in touched:
            self._hashes.pop(name, None)
            self._name_hashes.pop(name, None)

    def existing(self, names: Collection[str]) -> list[str]:
        """Return the topics of ``names`` that exist, in any order.

        The smaller of ``names`` and the topics of the image is iterated.
        """
        topics = self.image.topics
        if len(names) > len(topics) and isinstance(names, Set | Mapping):
            return [name for name in topics if name in names]
        return [name for name in names if name in topics]

    def unhashed(self, *subscriptions: Collection[str]) -> list[str]:
        """Return the existing topics of ``subscriptions`` without a cached hash if hashing them exceeds a time slice.

        Return an empty list if it does not: `hash_of` then computes the hashes at once.
        """
        topics, hashes = self.image.topics, self._hashes
        found = {name: None for names in subscriptions for name in self.existing(names) if name not in hashes}
        return list(found) if sum(_hashing_work(topics[name]) for name in found) > MAX_HASHED_PER_SLICE else []

    def topic_hashes_job(self, names: list[str], at_once: int = MAX_HASHED_PER_SLICE) -> Generator[None, None, None]:
        """Compute and cache the hashes of the existing topics of ``names``, as a job.

        It yields after every ``at_once`` units of work: 1 for a topic and 1 for 8 of its partitions.
        """
        work = 0
        for name in names:
            topic = self.image.topics.get(name)
            if topic is not None:
                self._hashes[name] = topic_hash(topic, self.image)
                work += _hashing_work(topic)
            if work >= at_once:
                yield
                work = 0

    def hash_of(self, names: Collection[str]) -> int:
        """Return the metadata hash (``computeGroupHash``) of the existing topics of ``names``; 0 if none exists.

        Hashes of topics that are not cached are computed and cached.
        """
        parts, topics = [], self.image.topics
        for name in iteration_order.sort_strings(self.existing(names)):
            known = self._hashes.get(name)
            if known is None:
                known = self._hashes[name] = topic_hash(topics[name], self.image)
            parts.append(_LONG.pack(known))
        return _hash(b"".join(parts)) if parts else 0

    def ids(self, names: Collection[str]) -> list[bytes]:
        """Return the ids of the existing topics of ``names``."""
        topics = self.image.topics
        return [topics[name].id for name in self.existing(names)]

    def ids_in_hash_set_order(self, names: Collection[str]) -> list[bytes]:
        """Return the ids of the existing topics of ``names``, in the order of Java's ``new HashSet<>(names)``."""
        topics = self.image.topics
        there = self.existing(names)
        for name in there:
            if name not in self._name_hashes:
                self._name_hashes[name] = iteration_order.string_hash(name)
        order = iteration_order.hash_map_order(there, copied=len(names), hash_of=self._name_hashes.__getitem__)
        return [topics[name].id for name in order]

    def total_partitions(self, *subscriptions: Collection[str]) -> int:
        """Return the total number of partitions of the distinct existing topics of the subscriptions."""
        topics = self.image.topics
        found = {name for names in subscriptions for name in self.existing(names)}
        return sum(len(topics[name].partitions) for name in found)

    def partition_count(self, topic_id: bytes) -> int:
        """Return the number of partitions of a topic, which must exist, by its id."""
        return len(self.image.topics[self.image.topic_names[topic_id]].partitions)
