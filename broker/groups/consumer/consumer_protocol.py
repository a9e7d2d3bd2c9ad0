"""Embedded consumer protocol of classic members: decoding of subscriptions, and coding of assignments.

Source: ``ConsumerProtocol.java``, ``Utils.toConsumerProtocolAssignment`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Mapping
from typing import TypeVar

from ottla.broker.coordinator.record_batches import MAX_BATCH_BYTES, decode_job
from ottla.broker.groups.java_collections import iteration_order
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.errors import WireError
from ottla.wire.messages import consumer_protocol
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequestTopicPartitions

_VERSION = struct.Struct(">h")
NEWEST_VERSION = 3
LARGEST_BYTES = MAX_BATCH_BYTES
"""Largest embedded metadata: a member with more has a record that exceeds the batch size of `__consumer_offsets`."""
M = TypeVar("M", bound=Message)


def decode_version(raw: bytes) -> int:
    """Return the version with which embedded metadata is to be decoded: its own, but at most the newest known.

    Raises:
        WireError: the version is missing or negative.
    """
    if len(raw) < 2:
        raise WireError("embedded metadata without a version")
    version: int = _VERSION.unpack_from(raw)[0]
    if version < 0:
        raise WireError(f"embedded metadata of version {version}")
    return min(version, NEWEST_VERSION)


def _decode(cls: type[M], raw: bytes) -> Generator[None, None, M]:
    if len(raw) > LARGEST_BYTES:
        raise WireError(f"embedded metadata too large: {len(raw)} bytes (at most {LARGEST_BYTES})")
    return (yield from decode_job(cls, decode_version(raw), raw))


def decode_subscription(raw: bytes) -> Generator[None, None, consumer_protocol.ConsumerProtocolSubscription]:
    """Decode the embedded subscription of a member (version and message), as a job.

    Raises:
        WireError: the bytes are malformed, more than `LARGEST_BYTES`, or would take far more memory.
    """
    return _decode(consumer_protocol.ConsumerProtocolSubscription, raw)


def decode_assignment(raw: bytes) -> Generator[None, None, consumer_protocol.ConsumerProtocolAssignment]:
    """Decode the embedded assignment of a member (version and message), as a job; no bytes are an empty assignment.

    Raises:
        WireError: the bytes are malformed, more than `LARGEST_BYTES`, or would take far more memory.
    """
    if not raw:
        return consumer_protocol.ConsumerProtocolAssignment()
    return (yield from _decode(consumer_protocol.ConsumerProtocolAssignment, raw))


def owned_partitions(
    subscription: consumer_protocol.ConsumerProtocolSubscription, image: MetadataImage
) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
    """Return the owned partitions of a subscription by topic id, without topics that do not exist."""
    row = ConsumerGroupHeartbeatRequestTopicPartitions
    topics = image.topics
    return [row(topics[t.topic].id, t.partitions) for t in subscription.owned_partitions if t.topic in topics]


def encode_assignment(partitions: Mapping[bytes, Iterable[int]], image: MetadataImage, version: int) -> bytes:
    """Return partitions by topic id as an embedded assignment in ``version``, without topics that do not exist."""
    rows = []
    for topic in iteration_order.uuid_hash_map_order(partitions):
        name = image.topic_names.get(topic)
        if name is not None:
            rows.append(
                consumer_protocol.ConsumerProtocolAssignmentTopicPartition(
                    name, list(iteration_order.integer_hash_set_order(partitions[topic]))
                )
            )
    return _VERSION.pack(version) + compiler.encode(consumer_protocol.ConsumerProtocolAssignment(rows), version)
