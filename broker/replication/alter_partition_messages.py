"""AlterPartition requests of a leader, and the effect of their responses on its partitions.

Source: ``AlterPartitionManager.java``, ``Partition.handleAlterPartitionError`` (apache/kafka 4.3.1); KIP-497, KIP-903.
"""

from __future__ import annotations

import logging

from ottla.broker.replication.hosted_partition import PendingIsrChange
from ottla.broker.replication.partition_state import (
    AlterPartitionOutcome,
    AlterPartitionResult,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.jobs.job import Job
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

logger = logging.getLogger("ottla.isr")
ALTER_PARTITION_VERSION = 3
RECOVERING = 1
MAX_LOGGED_PARTITIONS = 5
"""Maximum number of partitions named in a log message about ISR changes; one response may change thousands."""
PartitionKey = tuple[bytes, int]


def build_alter_partition_request(
    node_id: int, broker_epoch: int, sent: dict[PartitionKey, PendingIsrChange]
) -> AlterPartitionRequest:
    """Return an AlterPartition request with the pending ISR changes in ``sent``.

    Each ISR member has the broker epoch of its last Fetch, this node has ``broker_epoch``.
    """
    topics: dict[bytes, AlterPartitionRequestTopicData] = {}
    for (topic_id, number), pending in sent.items():
        change = pending.change
        known = zip(change.isr, change.broker_epochs, strict=True)
        members = [BrokerState(i, broker_epoch if i == node_id else epoch) for i, epoch in known]
        row = AlterPartitionRequestPartitionData(
            number, change.leader_epoch, new_isr_with_epochs=members, partition_epoch=change.partition_epoch
        )
        topics.setdefault(topic_id, AlterPartitionRequestTopicData(topic_id)).partitions.append(row)
    return AlterPartitionRequest(node_id, broker_epoch, list(topics.values()))


def apply_alter_partition_response(
    answer: AlterPartitionResponse, sent: dict[PartitionKey, PendingIsrChange], replicas: ReplicaManager, now_ms: int
) -> Job[list[PartitionKey]]:
    """Apply the response to each partition's ISR, as a job; return the partitions that must be sent again (R-334).

    ``sent``: the changes of the request by partition; a partition that the response lacks is returned, too.
    """
    rows = {(t.topic_id, p.partition_index): p for t in answer.topics for p in t.partitions}
    log_texts: list[str] = []
    again = []
    for key, pending in sent.items():
        row = rows.get(key)
        if (
            row is None
            or _apply_partition_result(pending, row, replicas, log_texts, now_ms) is AlterPartitionOutcome.RETRY
        ):
            again.append(key)
        yield None
    if log_texts:
        more = f", and {len(log_texts) - MAX_LOGGED_PARTITIONS} more" if len(log_texts) > MAX_LOGGED_PARTITIONS else ""
        logger.info("%s%s", "; ".join(log_texts[:MAX_LOGGED_PARTITIONS]), more)
    return again


def _apply_partition_result(
    pending: PendingIsrChange,
    row: AlterPartitionResponsePartitionData,
    replicas: ReplicaManager,
    log_texts: list[str],
    now_ms: int,
) -> AlterPartitionOutcome:
    """Apply the controller's result ``row`` for one partition, count it unless ignored, and return the outcome.

    The text of an ISR change is appended to ``log_texts``; a rejected change is logged here. ``now_ms``: wall clock.
    """
    replica = pending.replica
    recovering = row.leader_recovery_state == RECOVERING
    answer = AlterPartitionResult(row.error_code, row.leader_epoch, row.partition_epoch, tuple(row.isr), recovering)
    outcome = replica.handle_alter_partition_result(pending, answer, now_ms)
    if outcome is AlterPartitionOutcome.APPLIED:
        if isinstance(pending.pending_isr, PendingExpandIsr):
            replicas.isr_expands += 1
        else:
            replicas.isr_shrinks += 1
        isr = ",".join(map(str, row.isr))
        text = f"ISR updated to {isr} and version updated to {row.partition_epoch}: {replica.log.label}"
        if isinstance(pending.pending_isr, PendingShrinkIsr):
            former = ",".join(map(str, pending.pending_isr.committed.isr))
            text = f"Shrinking ISR from {former} to {isr}; {text}"
        log_texts.append(text)
    elif outcome is not AlterPartitionOutcome.IGNORED:
        replicas.isr_failures += 1
        code = ErrorCode(row.error_code).name
        logger.info("Failed to update ISR of %s: %s, %s", replica.log.label, code, outcome.value)
    return outcome
