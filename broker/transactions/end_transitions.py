"""Transitions that end a transaction: to PrepareCommit or PrepareAbort, and to CompleteCommit or CompleteAbort.

``now_ms``: wall clock.

Source: ``TransactionMetadata.prepareAbortOrCommit``, ``prepareComplete``, ``prepareFenceProducerEpoch`` (apache/kafka
4.3.1).

An epoch of its own for every transaction: KIP-890.
"""

from __future__ import annotations

from ottla.broker.transactions.init_producer_id import NewProducerId
from ottla.broker.transactions.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    MAX_PRODUCER_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    S,
    TransactionMetadata,
)
from ottla.wire.errors import ErrorCode, ProtocolError


def prepare_abort_or_commit(txn: TransactionMetadata, now_ms: int, *, commits: bool) -> TransactionMetadata:
    """Return the transaction in state PrepareCommit or PrepareAbort, with the same producer epoch.

    It is that of producers without an epoch for each transaction, and sets ``client_transaction_version`` to 0.
    """
    return txn.transition_to(
        S.PREPARE_COMMIT if commits else S.PREPARE_ABORT,
        next_producer_id=NO_PRODUCER_ID,
        last_update_ms=now_ms,
        client_transaction_version=0,
    )


def prepare_abort_or_commit_with_epoch_bump(
    txn: TransactionMetadata, now_ms: int, fresh: NewProducerId, *, commits: bool
) -> TransactionMetadata:
    """Return the transaction in state PrepareCommit or PrepareAbort, with the next producer epoch.

    From epoch 32766 on it has a new id as ``next_producer_id``; an abort in the largest epoch, 32767, keeps that
    epoch. An idle transactional id can only be aborted, as an empty transaction. ``fresh``: returns a new producer id.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR for a commit with the largest epoch, as in Kafka; or as `NewProducerId`.
    """
    if txn.producer_epoch >= MAX_PRODUCER_EPOCH and commits:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    next_id = fresh() if txn.is_epoch_exhausted else NO_PRODUCER_ID
    stuck = txn.producer_epoch == MAX_PRODUCER_EPOCH and not commits
    return txn.transition_to(
        S.PREPARE_COMMIT if commits else S.PREPARE_ABORT,
        producer_epoch=txn.producer_epoch if stuck else txn.producer_epoch + 1,
        last_producer_epoch=txn.producer_epoch,
        next_producer_id=next_id,
        start_ms=txn.start_ms if txn.state is S.ONGOING else now_ms,
        last_update_ms=now_ms,
        client_transaction_version=EPOCH_BUMP_VERSION,
    )


def prepare_fence_producer_epoch(
    txn: TransactionMetadata, now_ms: int, fresh: NewProducerId, *, bumps: bool
) -> TransactionMetadata:
    """Return the transaction in state PrepareAbort, aborted by the coordinator with an epoch that fences the producer.

    The epoch is the next one, but at most the largest, 32767.
    ``bumps``: each transaction has an epoch of its own (transaction.version 2); ``fresh``: returns a new producer id.

    Raises:
        ProtocolError: as `NewProducerId`.
    """
    if bumps:
        return prepare_abort_or_commit_with_epoch_bump(txn, now_ms, fresh, commits=False)
    epoch = min(txn.producer_epoch + 1, MAX_PRODUCER_EPOCH)
    return prepare_abort_or_commit(
        txn._replace(producer_epoch=epoch, last_producer_epoch=NO_EPOCH), now_ms, commits=False
    )


def prepare_complete(txn: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the transaction in state CompleteCommit or CompleteAbort, without partitions.

    If the epochs are exhausted, it has the next producer id, with epoch 0.
    """
    goes_over = txn.client_transaction_version >= EPOCH_BUMP_VERSION and txn.next_producer_id != NO_PRODUCER_ID
    return txn.transition_to(
        S.COMPLETE_COMMIT if txn.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT,
        producer_id=txn.next_producer_id if goes_over else txn.producer_id,
        producer_epoch=0 if goes_over else txn.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_ms=now_ms,
    )
