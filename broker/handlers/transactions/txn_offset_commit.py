"""TxnOffsetCommit (28), v0-5: commit offsets of a group as part of a transaction.

Behaviour: the group's `__consumer_offsets` partition must have been added to the transaction; v5 adds it. The offsets
become visible when the transaction commits. An unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION, too long
metadata OFFSET_METADATA_TOO_LARGE; the group's error applies to all other partitions: a stale generation is
ILLEGAL_GENERATION for every type of group.
Version notes: v0-1 return COORDINATOR_NOT_AVAILABLE for a loading coordinator; v3 has the member; v4 returns
TRANSACTION_ABORTABLE.

Source: ``KafkaApis.handleTxnOffsetCommitRequest``, ``GroupCoordinatorService.commitTransactionalOffsets``,
``OffsetMetadataManager.commitTransactionalOffset`` (apache/kafka 4.3.1).
From KIP-98; fencing by the group: KIP-447; adding and verifying: KIP-890.
"""

from __future__ import annotations

from ottla.broker.coordinator.errors import to_client_error
from ottla.broker.dispatch.dispatcher import RequestContext, ResponseJob
from ottla.broker.groups.coordinator import TOPIC as OFFSETS_TOPIC
from ottla.broker.groups.offset_commit import CommitOffsets
from ottla.broker.handlers.offsets.valid_offsets import ValidPartitions, is_metadata_too_long, new_offsets
from ottla.broker.transactions.verification import TransactionSupportedOperation, VerificationRequest
from ottla.controller.metadata import acl
from ottla.jobs.job import Job
from ottla.jobs.state_machine import TransactionContext
from ottla.wire.codec.response_array import changeable_array
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.record_batch.batch_header import NO_SEQUENCE

_ADDS_SINCE = 5
_ABORTABLE_SINCE = 4
_LOADING_SINCE = 2


class _TxnOffsetCommit:
    """TxnOffsetCommit request in progress: valid partitions and response.

    Call `validate`, then `commit`, then `apply_result` with its result.
    """

    def __init__(self, context: RequestContext, request: TxnOffsetCommitRequest) -> None:
        self._context = context
        self._request = request
        self._limit = context.services.groups.settings.max_metadata_bytes
        self._topic_responses: dict[str, TxnOffsetCommitResponseTopic] = {}
        self.valid_partitions: list[ValidPartitions] = []
        self.response = TxnOffsetCommitResponse(topics=changeable_array())

    def _add_response(self, name: str, part: TxnOffsetCommitRequestPartition, code: ErrorCode) -> None:
        row = self._topic_responses.get(name)
        if row is None:
            rows = self._context.response_array()
            row = self._topic_responses[name] = TxnOffsetCommitResponseTopic(name, rows)
            self.response.topics.append(row)
        row.partitions.append(TxnOffsetCommitResponsePartition(part.partition_index, code))

    def validate(self) -> Job[None]:
        """Add an error row for each unknown or unauthorized partition; collect the others in `valid_partitions`."""
        context, request = self._context, self._request
        unauthorized = self._unauthorized()
        for wanted in request.topics:
            code, known = unauthorized, context.image.topics.get(wanted.name)
            if code is ErrorCode.NONE and not context.may(acl.AclOperation.READ, acl.ResourceType.TOPIC, wanted.name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            good: list[TxnOffsetCommitRequestPartition] = []
            for part in wanted.partitions:
                if code is not ErrorCode.NONE:
                    self._add_response(wanted.name, part, code)
                elif known is not None and part.partition_index in known.partitions:
                    good.append(part)
                else:
                    self._add_response(wanted.name, part, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                yield None
            if good and known is not None:
                self.valid_partitions.append(ValidPartitions(wanted.name, known.id, good))
            yield None

    def _unauthorized(self) -> ErrorCode:
        context, request = self._context, self._request
        if not context.may(acl.AclOperation.WRITE, acl.ResourceType.TRANSACTIONAL_ID, request.transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not context.may(acl.AclOperation.READ, acl.ResourceType.GROUP, request.group_id):
            return ErrorCode.GROUP_AUTHORIZATION_FAILED
        return ErrorCode.NONE

    def commit(self) -> Job[ErrorCode]:
        """Verify the transaction, submit the valid offsets to the group coordinator and wait until they are committed.

        Return the error code that applies to all valid partitions, NONE on success; as a job.
        """
        request, groups = self._request, self._context.services.groups
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        at = OFFSETS_TOPIC, groups.partition_for(request.group_id)
        try:
            txn = yield from self._verify_transaction(at)
        except ProtocolError as error:
            return to_client_error(error.code)
        pending = groups.submit(
            request.group_id,
            lambda own: CommitOffsets(
                own,
                request.group_id,
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                -1,
                new_offsets(self.valid_partitions, self._limit),
                self._context.version,
                txn,
            ),
        )
        answer = yield pending.wait()
        code: ErrorCode = answer.code if isinstance(answer, ProtocolError) else answer
        return code

    def _verify_transaction(self, at: tuple[str, int]) -> Job[TransactionContext]:
        """Verify or add the group's `__consumer_offsets` partition in the transaction coordinator, as a job.

        Raises:
            ProtocolError: The coordinator rejects it or is not available.
        """
        request, version = self._request, self._context.version
        operation = TransactionSupportedOperation.VERIFY
        if version >= _ABORTABLE_SINCE:
            operation = (
                TransactionSupportedOperation.ADD
                if version >= _ADDS_SINCE
                else TransactionSupportedOperation.VERIFY_ABORTABLE
            )
        producer = request.producer_id, request.producer_epoch
        wanted = VerificationRequest(request.transactional_id, *producer, {at: NO_SEQUENCE}, operation)
        answer = yield self._context.services.transaction_verifier().verify_once(wanted)
        code = answer.errors.get(at)
        if code is not None:
            raise ProtocolError(code)
        confirmed = answer.txns.get(at)
        return TransactionContext(*producer, None if confirmed is None else confirmed.guard)

    def apply_result(self, verdict: ErrorCode) -> Job[None]:
        """Add a row with the group's error code ``verdict`` for each valid partition, as a job."""
        if verdict is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._context.version < _LOADING_SINCE:
            verdict = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for name, _, partitions in self.valid_partitions:
            for part in partitions:
                long = verdict is ErrorCode.NONE and is_metadata_too_long(part, self._limit)
                self._add_response(name, part, ErrorCode.OFFSET_METADATA_TOO_LARGE if long else verdict)
                yield None
            yield None


def handle(context: RequestContext, request: TxnOffsetCommitRequest) -> ResponseJob:
    """Validate the partitions, verify the transaction, commit the valid offsets; return an error code for each."""
    work = _TxnOffsetCommit(context, request)
    yield from work.validate()
    if work.valid_partitions:
        yield from work.apply_result((yield from work.commit()))
    return work.response
