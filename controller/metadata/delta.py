"""Changes between two published metadata images, so that listeners need not compare them.

Source: ``MetadataDelta.java``, ``TopicsDelta.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage, TopicImage
from ottla.jobs.job import Job
from ottla.jobs.sequences import YIELD_EVERY, sort_job

NO_CHANGES: frozenset[Any] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicDelta:
    """State of a changed topic before and after; a topic created again with the same name has another id in ``new``."""

    old: TopicImage | None
    """Topic before the change; None if it did not exist."""
    new: TopicImage | None
    """Topic after the change; None if it was deleted."""
    partitions: frozenset[int]
    """Numbers of the created or changed partitions in ``new``; all if its topic id differs; empty without ``new``."""

    @property
    def is_same_topic(self) -> bool:
        """True if the topic exists before and after the change with the same id."""
        return self.old is not None and self.new is not None and self.old.id == self.new.id


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """Objects touched between two published images, for listeners.

    Every changed object is listed; a listed one may be equal.
    """

    topics: Mapping[str, TopicDelta] = field(default_factory=dict)
    configs: frozenset[tuple[int, str]] = NO_CHANGES
    """(resource type, name) of the resources whose settings changed."""
    brokers: frozenset[int] = NO_CHANGES
    controllers: frozenset[int] = NO_CHANGES
    features: bool = False
    producer_ids: bool = False
    others: frozenset[tuple[Any, ...]] = NO_CHANGES
    """Changed keys of ``MetadataImage.others`` (ACLs, SCRAM credentials, delegation tokens, quotas)."""

    @property
    def is_empty(self) -> bool:
        """True if no object was touched."""
        return self == MetadataDelta()

    def created_topics(self) -> Iterator[TopicImage]:
        """Return an iterator over the topics, as they are now, whose topic id is new."""
        return (t.new for t in self.topics.values() if t.new is not None and not t.is_same_topic)

    def deleted_topics(self) -> Iterator[TopicImage]:
        """Return an iterator over the topics, as they were, whose topic id does not exist any more."""
        return (t.old for t in self.topics.values() if t.old is not None and not t.is_same_topic)

    @staticmethod
    def from_empty(image: MetadataImage) -> MetadataDelta:
        """Return the delta from an empty image to ``image``, for a new listener."""
        topics = sorted(image.topics.items())
        return MetadataDelta(
            {name: TopicDelta(None, topic, frozenset(topic.partitions)) for name, topic in topics},
            frozenset(image.configs),
            frozenset(image.brokers),
            frozenset(image.controllers),
            bool(image.features),
            image.next_producer_id is not None,
            frozenset(image.others),
        )


def compare_images(old: MetadataImage, new: MetadataImage) -> Job[MetadataDelta]:
    """Return the delta between two images by a full comparison, as a job; needed after a snapshot replaced the log.

    All broker settings in ``new`` are listed, changed or not.
    """
    topics: dict[str, TopicDelta] = {}
    for number, name in enumerate((yield from sort_job({*old.topics, *new.topics})), 1):
        if number % YIELD_EVERY == 0:
            yield None
        before, after = old.topics.get(name), new.topics.get(name)
        if before == after:
            continue
        known = before.partitions if before is not None and after is not None and before.id == after.id else {}
        there = {} if after is None else after.partitions
        changed = frozenset(n for n, partition in there.items() if known.get(n) != partition)
        topics[name] = TopicDelta(before, after, changed)
    return MetadataDelta(
        topics,
        _changed(old.configs, new.configs) | {place for place in new.configs if place[0] == RESOURCE_BROKER},
        _changed(old.brokers, new.brokers),
        _changed(old.controllers, new.controllers),
        old.features != new.features,
        old.next_producer_id != new.next_producer_id,
        _changed(old.others, new.others),
    )


def _changed(old: Mapping[Any, Any], new: Mapping[Any, Any]) -> frozenset[Any]:
    return frozenset(key for key in {*old, *new} if old.get(key) != new.get(key))


MetadataListener = Callable[[MetadataImage, MetadataDelta], None]
"""Listener called with each published image and the changes since the one before."""
