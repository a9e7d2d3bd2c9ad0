"""Partitions of a request with logs that are still being created; the dispatcher waits for them before the handler.

Only evaluated while logs are being created, so that its speed does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.broker.api_spec import ApiSpec, CoordinatorPartitions, NamedPartitions
from ottla.broker.coordinator.runtime import partition_for_key
from ottla.broker.metadata.controller_forwarder import OFFSETS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from ottla.broker.services import BrokerServices
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import Job
from ottla.wire.codec.schema import ZERO_UUID

PartitionNames = Iterator[tuple[str | None, int]]


def _named_partitions(fields: NamedPartitions, body: Any, image: MetadataImage) -> PartitionNames:
    """Yield topic name and number of each partition in ``body``; the name is None for an unknown topic id.

    ``(None, -1)`` after each topic lets the caller yield.
    """
    for topic in getattr(body, fields.topics):
        topic_id = ZERO_UUID if fields.topic_id is None else getattr(topic, fields.topic_id)
        name = getattr(topic, fields.name) if topic_id == ZERO_UUID else image.topic_names.get(topic_id)
        for partition in getattr(topic, fields.partitions):
            yield name, partition if fields.number is None else getattr(partition, fields.number)
        yield None, -1


def _coordinator_partitions(body: Any, image: MetadataImage) -> PartitionNames:
    name = {0: OFFSETS_TOPIC, 1: TRANSACTIONS_TOPIC, 2: SHARE_TOPIC}.get(body.key_type, "")
    topic = image.topics.get(name)
    if topic is not None:
        for key in body.coordinator_keys or [body.key]:
            yield name, partition_for_key(key, len(topic.partitions))


def partitions_to_create(spec: ApiSpec, body: Any, services: BrokerServices) -> Job[list[tuple[str, int]]]:
    """Return the partitions that a request names, with logs that are still being created here, as a job.

    ``body`` is the request; the fields of its partitions are those of ``spec``; without any the result is empty.
    """
    image, fields = services.replica_manager.image, spec.partitions
    if fields is None:
        return []
    found: dict[tuple[str, int], None] = {}
    for name, number in (
        _coordinator_partitions(body, image)
        if isinstance(fields, CoordinatorPartitions)
        else _named_partitions(fields, body, image)
    ):
        if name is not None and (name, number) in services.log_creator:
            found[name, number] = None
        yield None
    return list(found)
