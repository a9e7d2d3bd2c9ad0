"""Rules of AddPartitionsToTxn: producer check, and the transition that adds partitions.

Source: ``TransactionCoordinator.handleAddPartitionsToTransaction``, ``handleVerifyPartitionsInTransaction``,
``TransactionMetadata.prepareAddPartitions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.transactions.transaction_metadata import (
    IDLE_STATES,
    PREPARED_STATES,
    S,
    TopicPartition,
    TransactionMetadata,
)
from ottla.wire.errors import ErrorCode, ProtocolError


def check_producer(txn: TransactionMetadata | None, producer_id: int, epoch: int) -> TransactionMetadata:
    """Return ``txn`` if it has this producer id and epoch and is not in PrepareCommit or PrepareAbort.

    ``txn``: None if the transactional id is unknown.

    Raises:
        ProtocolError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
    """
    if txn is None or txn.producer_id != producer_id:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if txn.producer_epoch != epoch:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    if txn.state in PREPARED_STATES:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return txn


def prepare_add_partitions(
    txn: TransactionMetadata, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
) -> TransactionMetadata | None:
    """Return the transaction in state Ongoing with added partitions; None if it is ongoing and has them already.

    An idle transactional id starts a transaction at ``now_ms`` (wall clock). ``client_version``: transaction.version of
    the producer.
    """
    if txn.state is S.ONGOING and partitions <= txn.partitions:
        return None
    return txn.transition_to(
        S.ONGOING,
        partitions=txn.partitions | partitions,
        start_ms=now_ms if txn.state in IDLE_STATES else txn.start_ms,
        last_update_ms=now_ms,
        client_transaction_version=client_version,
    )
