"""OffsetCommit (8), v2-10: commit offsets of a group; the response is sent once they are committed to the log.

Behaviour: the empty group id is valid. An unknown topic or partition has its own error (3, from v10 UNKNOWN_TOPIC_ID
for an unknown id); the group's error code applies to all other partitions; without one, too long metadata is
OFFSET_METADATA_TOO_LARGE (12). The response has one row for each topic; unknown partitions come first. v2-4 may have a
retention time.

Source: ``KafkaApis.handleOffsetCommitRequest``, ``OffsetMetadataManager.commitOffset`` (apache/kafka 4.3.1).
Leader epochs: KIP-320; static members: KIP-345; topic ids: KIP-848.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.coordinator.pending_request import PendingBrokerRequest
from ottla.broker.dispatch.dispatcher import HandlerResult, RequestContext, ResponseJob
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.handlers.item_results import wait_for_result
from ottla.broker.handlers.offsets.valid_offsets import ValidPartitions, is_metadata_too_long, new_offsets
from ottla.jobs.job import Job
from ottla.wire.codec.response_array import changeable_array
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


class _OffsetCommit:
    """OffsetCommit request in progress: valid partitions and response.

    Call `validate`, then `submit`, then `apply_result` with the result.
    """

    def __init__(self, context: RequestContext, request: OffsetCommitRequest) -> None:
        self._context = context
        self._request = request
        self._image = context.image
        self._limit = context.services.groups.settings.max_metadata_bytes
        self._topic_responses: dict[Any, OffsetCommitResponseTopic] = {}
        self.valid_partitions: list[ValidPartitions] = []
        self.response = OffsetCommitResponse(topics=changeable_array())

    def _row(self, name: str, topic_id: bytes) -> OffsetCommitResponseTopic:
        """Return the topic's row of the response, by name up to v9, by topic id from v10; create it if needed."""
        key = name if self._context.version < 10 else topic_id
        row = self._topic_responses.get(key)
        if row is None:
            row = self._topic_responses[key] = OffsetCommitResponseTopic(name, topic_id, self._context.response_array())
            self.response.topics.append(row)
        return row

    def validate(self) -> Job[None]:
        """Add an error row for each unknown partition, as a job; collect the others in ``valid_partitions``."""
        by_id = self._context.version >= 10
        for wanted in self._request.topics:
            name = self._image.topic_names.get(wanted.topic_id) if by_id else wanted.name
            topic = self._image.topics.get(name) if name is not None else None
            code = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            good: list[OffsetCommitRequestPartition] = []
            for part in wanted.partitions:
                if topic is not None and part.partition_index in topic.partitions:
                    good.append(part)
                else:
                    row = self._row(wanted.name, wanted.topic_id)
                    row.partitions.append(OffsetCommitResponsePartition(part.partition_index, code))
                yield None
            if good and topic is not None:
                self.valid_partitions.append(ValidPartitions(topic.name, topic.id, good))
            yield None

    def submit(self) -> PendingBrokerRequest:
        """Submit the valid offsets to the group coordinator; return the pending request."""
        request = self._request
        return self._context.services.groups.submit(
            request.group_id,
            lambda own: CommitOffsets(
                own,
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                request.retention_time_ms,
                new_offsets(self.valid_partitions, self._limit),
                self._context.version,
            ),
        )

    def apply_result(self, answer: Any) -> Job[None]:
        """Add a row with the group's error code for each valid partition, as a job.

        ``answer`` is that error code or a `ProtocolError`. Too long metadata is OFFSET_METADATA_TOO_LARGE instead of
        NONE.
        """
        verdict = answer.code if isinstance(answer, ProtocolError) else answer
        for name, topic_id, partitions in self.valid_partitions:
            row = self._row(name, topic_id)
            for part in partitions:
                long = verdict == ErrorCode.NONE and is_metadata_too_long(part, self._limit)
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE if long else verdict
                row.partitions.append(OffsetCommitResponsePartition(part.partition_index, code))
                yield None
            yield None


def handle(context: RequestContext, request: OffsetCommitRequest) -> HandlerResult:
    """Validate the partitions and submit the valid offsets to the group coordinator; respond once committed.

    The group is not checked if no partition is valid.
    """
    return _commit(_OffsetCommit(context, request))


def _commit(work: _OffsetCommit) -> ResponseJob:
    yield from work.validate()
    if work.valid_partitions:
        yield from work.apply_result((yield from wait_for_result(work.submit())))
    return work.response
