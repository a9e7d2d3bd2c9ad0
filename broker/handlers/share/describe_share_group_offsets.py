"""DescribeShareGroupOffsets (90), v0-1: share-partition start offsets and lag of share groups.

Behaviour: the start offset is -1, without an error, for a partition that has no share state or whose state cannot be
read. Null topics mean all partitions of the group. The lag is the high watermark minus the start offset and minus the
number of completed records after it; -1 if unknown.
Version notes: v1 has the lag (KIP-1226).

Source: ``KafkaApis.handleDescribeShareGroupOffsetsRequest``, ``GroupCoordinatorService.java`` (apache/kafka 4.3.1),
KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.handlers.item_results import wait_for_success
from ottla.broker.handlers.share.share_acknowledgements import is_served
from ottla.broker.share_state.share_group_offsets import UNINITIALIZED, SharePartitionKey
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.jobs.bounded_concurrency import for_each_concurrently
from ottla.jobs.job import Job
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

PartitionResponse = DescribeShareGroupOffsetsResponsePartition


def handle(context: RequestContext, request: DescribeShareGroupOffsetsRequest) -> ResponseJob:
    """Return start offsets and lag of the partitions of each group; an error concerns only its group or partition."""
    response = DescribeShareGroupOffsetsResponse()
    for group in request.groups:
        response.groups.append((yield from _group(context, group)))
        yield None
    return response


def _error_group(group_id: str, code: ErrorCode) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id, error_code=code, error_message=code.text)


def _group(
    context: RequestContext, wanted: DescribeShareGroupOffsetsRequestGroup
) -> Job[DescribeShareGroupOffsetsResponseGroup]:
    if not is_served(context):
        return _error_group(wanted.group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not context.may(AclOperation.DESCRIBE, ResourceType.GROUP, wanted.group_id):
        return _error_group(wanted.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    row = DescribeShareGroupOffsetsResponseGroup(wanted.group_id)
    try:
        topics = (yield from _all_partitions(context, wanted.group_id)) if wanted.topics is None else None
    except ProtocolError as error:
        return _error_group(wanted.group_id, error.code)
    if topics is not None:
        names = {topic: context.image.topic_names.get(topic) for topic in topics}
        for topic_id, name in names.items():
            if name is not None and context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
                row.topics.append((yield _topic(context, wanted.group_id, name, topic_id, topics[topic_id])))
        return row
    for topic in wanted.topics or ():
        known = context.image.topics.get(topic.topic_name)
        if not context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic_name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            parts = [PartitionResponse(n, -1, 0, -1, code, code.text) for n in topic.partitions]
            row.topics.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, parts))
        elif known is None:
            parts = [PartitionResponse(n, UNINITIALIZED) for n in topic.partitions]
            row.topics.append(DescribeShareGroupOffsetsResponseTopic(topic.topic_name, ZERO_UUID, parts))
        else:
            row.topics.append((yield _topic(context, wanted.group_id, topic.topic_name, known.id, topic.partitions)))
        yield None
    return row


def _all_partitions(context: RequestContext, group_id: str) -> Job[Mapping[bytes, list[int]]]:
    """Return the numbers of all initialized partitions of a group by topic id, as a job; empty for an unknown group.

    The state that was read is committed to the log then.

    Raises:
        ProtocolError: The coordinator is not available.
    """
    shard = context.services.groups.shard_for(group_id)
    group = state_machine_of(shard).find_share_group(group_id)
    topics = {} if group is None else {topic: sorted(named.partitions) for topic, named in group.initialized.items()}
    pending = shard.read_barrier()
    if pending is not None:
        yield from wait_for_success(pending)
    return topics


async def _topic(
    context: RequestContext, group_id: str, name: str, topic_id: bytes, numbers: list[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    row = DescribeShareGroupOffsetsResponseTopic(name, topic_id, [PartitionResponse(number) for number in numbers])

    async def fill(at: int) -> None:
        row.partitions[at] = await _partition(context, name, SharePartitionKey(group_id, topic_id, numbers[at]))

    await for_each_concurrently(range(len(numbers)), fill)
    return row


async def _partition(context: RequestContext, name: str, key: SharePartitionKey) -> PartitionResponse:
    topic, shares = context.image.topics.get(name), context.services.share_partition_manager
    if topic is None or key.partition not in topic.partitions:  # Kafka retries to read its state for 30 s before
        return PartitionResponse(key.partition, UNINITIALIZED, 0, -1)
    try:
        start, finished, leader_epoch = await shares.persister.read_summary(key)
    except ProtocolError:
        return PartitionResponse(key.partition, UNINITIALIZED, 0, -1)
    lag = -1
    if start != UNINITIALIZED and finished != UNINITIALIZED:
        try:
            end = await shares.metadata_client.high_watermark(name, key.partition)
        except ProtocolError as error:
            return PartitionResponse(key.partition, error_code=error.code, error_message=error.code.text)
        lag = end - start - finished
    return PartitionResponse(key.partition, start, leader_epoch, lag)
