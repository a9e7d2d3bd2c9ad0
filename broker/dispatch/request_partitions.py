"""Which partitions a request is about: those that are still to be made come first then.

Asked only while something is to be made, so the table need not be quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ottla.broker.groups.coordinator import partition_for_key
from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from ottla.broker.services import BrokerServices
from ottla.jobs.time_slice import Job
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID

PartitionNames = Iterator[tuple[str | None, int]]
_NO_PARTITION = None, -1
"""Ends each topic: also one without partitions is a step."""


def _produce_partitions(body: Any, services: BrokerServices) -> PartitionNames:
    names = services.replica_manager.image.topic_names
    for topic in body.topic_data:
        name = topic.name if topic.topic_id == ZERO_UUID else names.get(topic.topic_id)
        yield from ((name, part.index) for part in topic.partition_data)
        yield _NO_PARTITION


def _fetch_partitions(body: Any, services: BrokerServices) -> PartitionNames:
    names = services.replica_manager.image.topic_names
    for topic in body.topics:
        name = topic.topic if topic.topic_id == ZERO_UUID else names.get(topic.topic_id)
        yield from ((name, part.partition) for part in topic.partitions)
        yield _NO_PARTITION


def _named_partitions(body: Any, _: BrokerServices) -> PartitionNames:
    for topic in body.topics:
        yield from ((topic.name, part.partition_index) for part in topic.partitions)
        yield _NO_PARTITION


def _leader_epoch_partitions(body: Any, _: BrokerServices) -> PartitionNames:
    for topic in body.topics:
        yield from ((topic.topic, part.partition) for part in topic.partitions)
        yield _NO_PARTITION


def _describe_producers_partitions(body: Any, _: BrokerServices) -> PartitionNames:
    for topic in body.topics:
        yield from ((topic.name, number) for number in topic.partition_indexes)
        yield _NO_PARTITION


def _coordinator_partitions(body: Any, services: BrokerServices) -> PartitionNames:
    name = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC, 2: SHARE_TOPIC}.get(body.key_type, "")
    topic = services.replica_manager.image.topics.get(name)
    if topic is not None:
        for key in body.coordinator_keys or [body.key]:
            yield name, partition_for_key(key, len(topic.partitions))


_PARTITIONS_BY_API: dict[ApiKey, Callable[[Any, BrokerServices], PartitionNames]] = {
    ApiKey.PRODUCE: _produce_partitions,
    ApiKey.FETCH: _fetch_partitions,
    ApiKey.LIST_OFFSETS: _named_partitions,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _leader_epoch_partitions,
    ApiKey.DELETE_RECORDS: _named_partitions,
    ApiKey.DESCRIBE_PRODUCERS: _describe_producers_partitions,
    ApiKey.FIND_COORDINATOR: _coordinator_partitions,
}


PARTITION_APIS = frozenset(_PARTITIONS_BY_API)
"""Requests about partitions."""


def partitions_to_create(key: ApiKey, body: Any, services: BrokerServices) -> Job[list[tuple[str, int]]]:
    """The partitions among them that are still to be made."""
    making = services.log_creator
    found: dict[tuple[str, int], None] = {}
    for name, number in _PARTITIONS_BY_API[key](body, services):
        if name is not None and (name, number) in making:
            found[name, number] = None
        yield
    return list(found)
