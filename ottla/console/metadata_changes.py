"""Newest changes of the cluster's metadata, as this node applied them: topics, leaders, ISR, brokers, settings, others.

The memory is bounded: `MAX_CONSOLE_CHANGES` changes, at most `MAX_LISTED` of each publication.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from ottla.broker.config.limits import MAX_CONSOLE_CHANGES
from ottla.controller.metadata.delta import MetadataDelta, TopicDelta
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage, PartitionRegistration
from ottla.env.env import Env

MAX_LISTED = 50
_RESOURCE_NAMES = {RESOURCE_TOPIC: "topic", RESOURCE_BROKER: "broker"}


class MetadataChange(NamedTuple):
    """Change of one object of the cluster's metadata, such as a partition, as a text for the page."""

    at_ms: int
    """Time in milliseconds since 1970 at which this node applied it."""
    offset: int
    """Offset in the metadata log up to which this node had read."""
    topic: str
    """Name of the topic that it concerns; empty for other objects."""
    text: str


class MetadataChanges:
    """Newest changes since the console was started; `publish` is subscribed to the node's metadata."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._changes: deque[MetadataChange] = deque(maxlen=MAX_CONSOLE_CHANGES)
        self._is_first = True

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Store texts of the changes in ``delta``; called after each change of the image.

        After `MAX_LISTED` of them, a text states that there may be further ones, and these are left out.

        The first call is ignored: its delta contains the whole image.
        """
        if self._is_first:
            self._is_first = False
            return
        now_ms = self._env.now_ms()
        count = 0
        for topic, text in islice(_describe_delta(image, delta), MAX_LISTED):
            self._changes.append(MetadataChange(now_ms, image.offset, topic, text))
            count += 1
        if count == MAX_LISTED:
            self._changes.append(MetadataChange(now_ms, image.offset, "", "Further changes at the same time."))

    def newest(self) -> list[MetadataChange]:
        """Return the recorded changes of the cluster metadata, newest first."""
        return list(reversed(self._changes))


def _describe_delta(image: MetadataImage, delta: MetadataDelta) -> Iterator[tuple[str, str]]:
    """Yield topic and text of each change; the topic is empty for other objects."""
    for name, topic in delta.topics.items():
        for text in _describe_topic(name, topic):
            yield name, text
    for number in sorted(delta.brokers):
        broker = image.brokers.get(number)
        state = "is gone" if broker is None else "is fenced" if broker.fenced else "is active"
        yield "", f"Broker {number} {state}."
    for number in sorted(delta.controllers):
        yield "", f"Controller {number} {'has registered' if number in image.controllers else 'is gone'}."
    deleted = {(RESOURCE_TOPIC, topic.name) for topic in delta.deleted_topics()}
    for kind, name in sorted(delta.configs - deleted):
        yield (
            name if kind == RESOURCE_TOPIC else "",
            (f"Settings of {_RESOURCE_NAMES.get(kind, 'resource')} {name or '(default)'} have changed."),
        )
    if delta.features:
        yield "", "Feature levels have changed."
    if delta.others:
        yield "", f"{len(delta.others)} access control lists, credentials, tokens or quotas have changed."


def _describe_topic(name: str, topic: TopicDelta) -> Iterator[str]:
    if topic.new is None:
        yield f"Topic {name} was deleted."
        return
    if not topic.is_same_topic:
        yield f"Topic {name} was created with {len(topic.new.partitions)} partitions."
        return
    before = topic.old.partitions if topic.old is not None else {}
    for number in sorted(topic.partitions):
        yield f"{name}-{number}: {_describe_partition(before.get(number), topic.new.partitions[number])}."


def _describe_partition(old: PartitionRegistration | None, new: PartitionRegistration) -> str:
    if old is None:
        return f"created, leader {new.leader}"
    parts = [
        f"{label} {_show(before)} becomes {_show(after)}"
        for label, before, after in (
            ("leader", old.leader, new.leader),
            ("ISR", old.isr, new.isr),
            ("replicas", old.replicas, new.replicas),
        )
        if before != after
    ]
    return ", ".join(parts) or f"partition epoch {new.partition_epoch}"


def _show(value: object) -> str:
    return " ".join(str(each) for each in value) or "none" if isinstance(value, tuple | list) else str(value)
