"""OffsetFetch (9), v1-10: committed offsets of groups.

Behaviour: an offset that was never committed is -1 with empty metadata and no error, also for an unknown group. Null
topics mean all offsets of the group (v2). From v8 a request may have several groups, from v10 topics are identified by
id; topics with an error are last in the response. The response is delayed until the offsets in it are committed to the
log. If stable offsets are required (v7), an offset that an open transaction may change is UNSTABLE_OFFSET_COMMIT.
Deviation: a group that occurs twice with null topics is returned once.

Source: ``OffsetMetadataManager.fetchOffsets``, ``KafkaApis.handleOffsetFetchRequest`` (apache/kafka 4.3.1).
Several groups: KIP-709; only stable offsets: KIP-447.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from functools import partial
from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.committed_offsets import INVALID_OFFSET, CommittedOffsets, unpack_offset
from ottla.broker.groups.coordinator import state_machine_of
from ottla.broker.groups.state_machine import GroupStateMachine
from ottla.broker.handlers.item_results import PendingResults, wait_before_encoding, wait_for_results
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.controller.metadata.image import MetadataImage
from ottla.jobs.job import Job
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

PartitionResponse = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


class _OffsetReader:
    """Builder of topic and partition rows for one OffsetFetch response, with the message classes of its version.

    The caller passes the stored offsets. ``pending_reads``: commits for which the response has to wait.
    """

    def __init__(self, context: RequestContext, *, stable: bool) -> None:
        self.context = context
        self._stable = stable
        self.image: MetadataImage = context.image
        self.response_class = OffsetFetchResponsePartition if context.version < 8 else OffsetFetchResponsePartitions
        self.pending_reads = PendingResults()

    def unstable_partitions(self, offsets: CommittedOffsets, group_id: str, topic: str) -> Container[int]:
        """Return the partitions with offsets of an open transaction; none if stable offsets are not required."""
        return offsets.pending.producers_by_partition(group_id, topic) if self._stable else ()

    def new_topic(self, name: str, topic_id: bytes = ZERO_UUID) -> Any:
        """Return a topic's row without partitions; the caller adds it to the response when it is complete."""
        rows = self.context.response_array()
        if self.context.version < 8:
            return OffsetFetchResponseTopic(name, rows)
        return OffsetFetchResponseTopics(name, topic_id, rows)

    def add_offsets(
        self,
        out: list[Any],
        partitions: Iterable[int],
        stored: Mapping[int, bytes],
        topic_id: bytes,
        unstable: Container[int],
    ) -> Job[None]:
        """Append the rows of a topic's partitions to ``out``, as a job.

        Args:
            out: Rows of the topic.
            partitions: Partitions to append.
            stored: Encoded committed offsets by partition.
            topic_id: Id of the topic; offsets committed for a deleted topic of the same name are returned as -1.
            unstable: Partitions whose error is UNSTABLE_OFFSET_COMMIT.
        """
        row = self.response_class
        for number in partitions:
            if unstable and number in unstable:
                out.append(row(number, INVALID_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT))
                yield None
                continue
            raw = stored.get(number)
            found = None if raw is None else unpack_offset(raw)
            if found is None or (topic_id != ZERO_UUID and found.topic_id not in (ZERO_UUID, topic_id)):
                out.append(row(number, INVALID_OFFSET, -1, ""))
            else:
                out.append(row(number, found.offset, found.leader_epoch, found.metadata))
            yield None

    def add_errors(self, out: list[Any], partitions: Iterable[int], code: int) -> Job[None]:
        """Append the rows of a topic's partitions to ``out``, each with the error code, as a job."""
        for number in partitions:
            out.append(self.response_class(number, INVALID_OFFSET, -1, "", code))
            yield None

    def id_of(self, name: str) -> bytes:
        """Return the topic id of a name by the metadata image; 16 zero bytes for an unknown topic."""
        known = self.image.topics.get(name)
        return ZERO_UUID if known is None else known.id


def _read_all_topics(
    reader: _OffsetReader, offsets: CommittedOffsets, group_id: str, out: OffsetFetchResponseGroup
) -> Job[None]:
    for name, stored in list(offsets.group_offsets(group_id).items()):
        topic_id = reader.id_of(name)
        if reader.context.version >= 10 and topic_id == ZERO_UUID:
            continue
        if not reader.context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            continue
        topic = reader.new_topic(name, topic_id)
        unstable = reader.unstable_partitions(offsets, group_id, name)
        yield from reader.add_offsets(topic.partitions, list(stored), stored, topic_id, unstable)
        out.topics.append(topic)
        yield None


def _read_topics(
    reader: _OffsetReader, offsets: CommittedOffsets, wanted: OffsetFetchRequestGroup, out: OffsetFetchResponseGroup
) -> Job[None]:
    by_id = reader.context.version >= 10
    failed = reader.context.response_array()
    for requested in wanted.topics or ():
        topic = reader.new_topic(requested.name, requested.topic_id)
        name = reader.image.topic_names.get(requested.topic_id) if by_id else requested.name
        code = ErrorCode.NONE
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not reader.context.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if name is None or code is not ErrorCode.NONE:
            yield from reader.add_errors(topic.partitions, requested.partition_indexes, code)
            failed.append(topic)
        else:
            stored = offsets.topic_offsets(wanted.group_id, name)
            unstable = reader.unstable_partitions(offsets, wanted.group_id, name)
            yield from reader.add_offsets(
                topic.partitions, requested.partition_indexes, stored, reader.id_of(name), unstable
            )
            out.topics.append(topic)
        yield None
    rows: Any = out.topics
    rows.append_array(failed)


def _set_error(out: OffsetFetchResponseGroup, answer: Any) -> None:
    if isinstance(answer, ProtocolError):
        out.error_code, out.topics = answer.code, []


def _check_fetch(machine: GroupStateMachine, wanted: OffsetFetchRequestGroup) -> None:
    """Check member id and member epoch of a request to a consumer or streams group; other groups are not checked.

    Raises:
        ProtocolError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION.
    """
    group = machine.find_consumer_group(wanted.group_id) or machine.find_streams_group(wanted.group_id)
    if group is not None:
        # lazy: 6.1 ms, 238 kB
        from ottla.broker.groups.offset_validation import validate_offset_fetch

        validate_offset_fetch(group, wanted.member_id, wanted.member_epoch)


def _read_group(reader: _OffsetReader, wanted: OffsetFetchRequestGroup, out: OffsetFetchResponseGroup) -> Job[None]:
    """Fill the row of one group, in the form of v8 and later, as a job; an error becomes its error code.

    Null topics in ``wanted`` mean all. If the state that was read is not committed to the log yet, a pending result is
    added to the reader's `pending_reads`; if the commit fails, it makes ``out`` an error without topics.
    """
    if not reader.context.may(AclOperation.DESCRIBE, ResourceType.GROUP, wanted.group_id):
        out.error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return
    try:
        shard = reader.context.services.groups.shard_for(wanted.group_id)
    except ProtocolError as error:
        out.error_code = error.code
        return
    machine = state_machine_of(shard)
    try:
        _check_fetch(machine, wanted)
    except ProtocolError as error:
        out.error_code = error.code
        return
    offsets, out.topics = machine.offsets, reader.context.response_array()
    if wanted.topics is None:
        yield from _read_all_topics(reader, offsets, wanted.group_id, out)
    else:
        yield from _read_topics(reader, offsets, wanted, out)
    pending = shard.read_barrier()
    if pending is not None:
        reader.pending_reads.append((pending, partial(_set_error, out)))


def _read_groups(reader: _OffsetReader, request: OffsetFetchRequest, response: OffsetFetchResponse) -> Job[None]:
    whole: set[str] = set()
    for wanted in request.groups:
        if wanted.topics is None and wanted.group_id in whole:
            continue
        if wanted.topics is None:
            whole.add(wanted.group_id)
        yield from wait_before_encoding(response.groups, reader.pending_reads)
        out = OffsetFetchResponseGroup(wanted.group_id)
        response.groups.append(out)
        yield from _read_group(reader, wanted, out)
        yield None
    yield from wait_for_results(reader.pending_reads)


def _read_before_v8(reader: _OffsetReader, request: OffsetFetchRequest, response: OffsetFetchResponse) -> Job[None]:
    """Fill a response up to v7, which has one group and topics by name, as a job.

    In v1 an error of the group is that of each partition.
    """
    requested, topics = request.topics, None
    if requested is not None:
        topics = (OffsetFetchRequestTopics(topic.name, ZERO_UUID, topic.partition_indexes) for topic in requested)
    wanted: Any = OffsetFetchRequestGroup(request.group_id, topics=topics)  # type: ignore[arg-type]
    out = OffsetFetchResponseGroup(request.group_id)
    yield from _read_group(reader, wanted, out)
    yield from wait_for_results(reader.pending_reads)
    rows: Any = out.topics
    if out.error_code and reader.context.version < 2:  # v1 has no error code of the response, only of partitions
        rows = reader.context.response_array()
        for topic in requested or ():
            row = reader.new_topic(topic.name)
            yield from reader.add_errors(row.partitions, topic.partition_indexes, out.error_code)
            rows.append(row)
            yield None
    response.error_code, response.topics = out.error_code, rows


def handle(context: RequestContext, request: OffsetFetchRequest) -> ResponseJob:
    """Read committed offsets from the coordinator's state; respond once that state is committed to the log.

    An error concerns only its group or topic; up to v7 the group's error is that of the response, in v1 of partitions.
    """
    response = OffsetFetchResponse(groups=context.response_array())
    reader = _OffsetReader(context, stable=request.require_stable)
    yield from (_read_before_v8 if context.version < 8 else _read_groups)(reader, request, response)
    return response
