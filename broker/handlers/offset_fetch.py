"""OffsetFetch (9), v1-10: read a group's positions.

Behaviour: what was never committed is -1 with empty metadata and no error, also for a group nobody knows. Null topics
mean all positions of the group (v2). v8 asks for several groups at once, v10 names topics by id.

Source: ``OffsetMetadataManager.fetchOffsets``, ``KafkaApis.handleOffsetFetchRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.groups.offsets import INVALID_OFFSET, Offsets
from ottla.broker.server.dispatch import Answer, Context
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import offset_fetch as m
from ottla.wire.schema import ZERO_UUID


def _offsets(context: Context, group_id: str) -> Offsets:
    return context.services.groups.shard_of(group_id).machine.offsets


def _position(offsets: Offsets, group: str, topic: str, partition: int, topic_id: bytes) -> tuple[int, int, str]:
    """(offset, leader epoch, metadata); a position of an earlier topic of the same name is none."""
    found = offsets.get(group, topic, partition)
    if found is None or (topic_id != ZERO_UUID and found.topic_id not in (ZERO_UUID, topic_id)):
        return INVALID_OFFSET, -1, ""
    return found.offset, found.leader_epoch, found.metadata


def _topic_id(context: Context, name: str) -> bytes:
    known = context.image.topics.get(name)
    return known.id if known is not None else ZERO_UUID


def _group(context: Context, wanted: m.OffsetFetchRequestGroup) -> m.OffsetFetchResponseGroup:
    """One group in the form of v8 and later."""
    out = m.OffsetFetchResponseGroup(wanted.group_id)
    try:
        offsets = _offsets(context, wanted.group_id)
    except ProtocolError as error:
        out.error_code = error.code
        return out
    topics = wanted.topics
    if topics is None:
        by_name: dict[str, list[int]] = {}
        for name, partition in offsets.of_group(wanted.group_id):
            by_name.setdefault(name, []).append(partition)
        topics = [m.OffsetFetchRequestTopics(n, _topic_id(context, n), p) for n, p in by_name.items()]
        if context.version >= 10:
            topics = [t for t in topics if t.topic_id != ZERO_UUID]
    for topic in topics:
        name_or_none = topic.name if context.version < 10 else context.image.topic_names.get(topic.topic_id)
        row = m.OffsetFetchResponseTopics(topic.name, topic.topic_id)
        for partition in topic.partition_indexes:
            if name_or_none is None:
                part = m.OffsetFetchResponsePartitions(partition, INVALID_OFFSET, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                own_id = _topic_id(context, name_or_none)
                found = _position(offsets, wanted.group_id, name_or_none, partition, own_id)
                part = m.OffsetFetchResponsePartitions(partition, *found)
            row.partitions.append(part)
        out.topics.append(row)
    return out


def _old(context: Context, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    """The form up to v7: one group, topics by name. v0 and v1 have no top-level error: each partition carries it."""
    topics = None
    if request.topics is not None:
        topics = [m.OffsetFetchRequestTopics(t.name, ZERO_UUID, t.partition_indexes) for t in request.topics]
    group = _group(context, m.OffsetFetchRequestGroup(request.group_id, topics=topics))
    response = m.OffsetFetchResponse(error_code=group.error_code)
    if group.error_code and topics is not None:
        code = group.error_code
        for wanted in topics:
            rows = [m.OffsetFetchResponsePartition(i, INVALID_OFFSET, -1, "", code) for i in wanted.partition_indexes]
            response.topics.append(m.OffsetFetchResponseTopic(wanted.name, rows if context.version < 2 else []))
        if context.version >= 2:
            response.topics = []
        return response
    for topic in group.topics:
        response.topics.append(
            m.OffsetFetchResponseTopic(
                topic.name,
                [
                    m.OffsetFetchResponsePartition(
                        p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
                    )
                    for p in topic.partitions
                ],
            )
        )
    return response


def handle(context: Context, request: m.OffsetFetchRequest) -> Answer:
    """Read positions straight from the shard's state: what stands there is committed."""
    if context.version < 8:
        return _old(context, request)
    return m.OffsetFetchResponse(groups=[_group(context, wanted) for wanted in request.groups])
