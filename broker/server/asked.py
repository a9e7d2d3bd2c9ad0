"""Which partitions a request is about: those that are still to be made come first then.

Asked only while something is to be made, so the table need not be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.groups.coordinator import partition_of
from ottla.broker.metadata.admin import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from ottla.broker.services import Services
from ottla.broker.turn import Steps
from ottla.wire.apis import ApiKey
from ottla.wire.schema import ZERO_UUID

Asked = Iterator[tuple[str | None, int]]
_NONE = None, -1
"""Ends each topic: also one without partitions is a step."""


def _produce(body: Any, services: Services) -> Asked:
    names = services.replicas.image.topic_names
    for topic in body.topic_data:
        name = topic.name if topic.topic_id == ZERO_UUID else names.get(topic.topic_id)
        yield from ((name, part.index) for part in topic.partition_data)
        yield _NONE


def _fetch(body: Any, services: Services) -> Asked:
    names = services.replicas.image.topic_names
    for topic in body.topics:
        name = topic.topic if topic.topic_id == ZERO_UUID else names.get(topic.topic_id)
        yield from ((name, part.partition) for part in topic.partitions)
        yield _NONE


def _list_offsets(body: Any, _: Services) -> Asked:
    for topic in body.topics:
        yield from ((topic.name, part.partition_index) for part in topic.partitions)
        yield _NONE


def _epochs(body: Any, _: Services) -> Asked:
    for topic in body.topics:
        yield from ((topic.topic, part.partition) for part in topic.partitions)
        yield _NONE


def _delete_records(body: Any, _: Services) -> Asked:
    for topic in body.topics:
        yield from ((topic.name, part.partition_index) for part in topic.partitions)
        yield _NONE


def _producers(body: Any, _: Services) -> Asked:
    for topic in body.topics:
        yield from ((topic.name, number) for number in topic.partition_indexes)
        yield _NONE


def _coordinators(body: Any, services: Services) -> Asked:
    name = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC, 2: SHARE_TOPIC}.get(body.key_type, "")
    topic = services.replicas.image.topics.get(name)
    if topic is not None:
        for key in body.coordinator_keys or [body.key]:
            yield name, partition_of(key, len(topic.partitions))


_TABLE: dict[ApiKey, Callable[[Any, Services], Asked]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _epochs,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_PRODUCERS: _producers,
    ApiKey.FIND_COORDINATOR: _coordinators,
}


NAMING = frozenset(_TABLE)
"""Requests about partitions."""


def partitions_of(key: ApiKey, body: Any, services: Services) -> Steps[list[tuple[str, int]]]:
    """The partitions among them that are still to be made."""
    making = services.making
    found: dict[tuple[str, int], None] = {}
    for name, number in _TABLE[key](body, services):
        if name is not None and (name, number) in making:
            found[name, number] = None
        yield
    return list(found)
