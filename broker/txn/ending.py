"""How a transaction ends: what it becomes when that is decided, and when all its partitions know.

Source: ``TransactionMetadata.prepareAbortOrCommit``, ``prepareComplete``, ``prepareFenceProducerEpoch``
(apache/kafka 4.3.1).

An epoch of its own for every transaction: KIP-890.
"""

from __future__ import annotations

from ottla.broker.txn.initialising import Fresh
from ottla.broker.txn.state import (
    EPOCH_BUMP,
    LARGEST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    S,
    Transaction,
)
from ottla.wire.errors import ErrorCode, ProtocolError


def prepared(txn: Transaction, now_ms: int, *, commits: bool) -> Transaction:
    """The decision, for a producer whose epoch stays."""
    return txn.to(
        S.PREPARE_COMMIT if commits else S.PREPARE_ABORT,
        next_producer_id=NO_PRODUCER_ID,
        updated_ms=now_ms,
        client_version=0,
    )


def prepared_with_bump(txn: Transaction, now_ms: int, fresh: Fresh, *, commits: bool) -> Transaction:
    """The decision, with another epoch; with another producer id too where the epochs are used up.

    What has no partitions, because nothing was ever written, begins now.

    Raises:
        ProtocolError: UNKNOWN_SERVER_ERROR where no epoch follows the one that commits, as in Kafka; as `Fresh`.
    """
    if txn.producer_epoch >= LARGEST_EPOCH and commits:
        raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
    next_id = fresh() if txn.is_exhausted else NO_PRODUCER_ID
    stuck = txn.producer_epoch == LARGEST_EPOCH and not commits
    return txn.to(
        S.PREPARE_COMMIT if commits else S.PREPARE_ABORT,
        producer_epoch=txn.producer_epoch if stuck else txn.producer_epoch + 1,
        last_epoch=txn.producer_epoch,
        next_producer_id=next_id,
        started_ms=txn.started_ms if txn.state is S.ONGOING else now_ms,
        updated_ms=now_ms,
        client_version=EPOCH_BUMP,
    )


def fenced(txn: Transaction, now_ms: int, fresh: Fresh, *, bumps: bool) -> Transaction:
    """An abort that nobody asked for: whoever holds the epoch in force is not listened to any more.

    Raises:
        ProtocolError: as `Fresh`.
    """
    if bumps:
        return prepared_with_bump(txn, now_ms, fresh, commits=False)
    epoch = min(txn.producer_epoch + 1, LARGEST_EPOCH)
    return prepared(txn._replace(producer_epoch=epoch, last_epoch=NO_EPOCH), now_ms, commits=False)


def completed(txn: Transaction, now_ms: int) -> Transaction:
    """What is left when all partitions know: with the next producer id, where there is to be one."""
    goes_over = txn.client_version >= EPOCH_BUMP and txn.next_producer_id != NO_PRODUCER_ID
    return txn.to(
        S.COMPLETE_COMMIT if txn.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT,
        producer_id=txn.next_producer_id if goes_over else txn.producer_id,
        producer_epoch=0 if goes_over else txn.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        updated_ms=now_ms,
    )
