"""Transitions of a transactional id by InitProducerId: a new producer, or recovery after an error (KIP-360).

``now_ms``: wall clock.

Source: ``TransactionCoordinator.handleInitProducerId``, ``prepareInitProducerIdTransit``,
``TransactionMetadata.prepareIncrementProducerEpoch`` (apache/kafka 4.3.1).

Recovery after an error: KIP-360.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.transactions.transaction_metadata import NO_EPOCH, S, TransactionMetadata, is_epoch_exhausted
from ottla.wire.errors import ErrorCode, ProtocolError

ExpectedProducer = tuple[int, int] | None
NewProducerId = Callable[[], int]
"""Returns a new producer id. Raises ProtocolError COORDINATOR_LOAD_IN_PROGRESS while no block of ids is allocated."""


def check_request(transactional_id: str, timeout_ms: int, max_timeout_ms: int) -> ErrorCode:
    """Return the error code of an InitProducerId request that is invalid in any state of the id; else NONE.

    INVALID_REQUEST: the id is empty; INVALID_TRANSACTION_TIMEOUT: not from 1 to `transaction.max.timeout.ms`.
    """
    if not transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < timeout_ms <= max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def new_transaction(timeout_ms: int, now_ms: int, fresh: NewProducerId) -> TransactionMetadata:
    """Return the initial state of a new transactional id: Empty, with a new producer id from ``fresh`` and epoch -1.

    Raises:
        ProtocolError: as `NewProducerId`.
    """
    return TransactionMetadata(fresh(), NO_EPOCH, timeout_ms, S.EMPTY, frozenset(), -1, now_ms)


def check_expected_producer(txn: TransactionMetadata, expected: ExpectedProducer) -> None:
    """Check that the expected producer id is the current one, or the previous one with an exhausted epoch.

    ``expected``: producer id and epoch of the request; None passes, as does any for a new transactional id.

    Raises:
        ProtocolError: PRODUCER_FENCED.
    """
    if expected is None or txn.producer_epoch == NO_EPOCH:
        return
    producer_id, epoch = expected
    went_over = producer_id == txn.previous_producer_id and is_epoch_exhausted(epoch)
    if producer_id != txn.producer_id and not went_over:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)


def prepare_init_producer_id(
    txn: TransactionMetadata, expected: ExpectedProducer, timeout_ms: int, now_ms: int, fresh: NewProducerId
) -> TransactionMetadata:
    """Return the transactional id in state Empty with the producer id and epoch for an InitProducerId request.

    The epoch is the next one, which fences the present producer. It is the present one for a repeated recovery request,
    and 0 with a new producer id (``fresh``) if the epochs are exhausted. ``expected``: producer id and epoch of a
    recovery request; None for a new producer.

    Raises:
        ProtocolError: PRODUCER_FENCED; UNKNOWN_SERVER_ERROR if the epochs are exhausted and a recovery request has
            another epoch than the present one, as in Kafka; or as `NewProducerId`.
    """
    producer_id, epoch, last = txn.producer_id, txn.producer_epoch + 1, NO_EPOCH
    given = None if expected is None else expected[1]
    if txn.is_epoch_exhausted:
        if given not in (None, txn.producer_epoch):
            raise ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR)
        producer_id, epoch, last = fresh(), 0, NO_EPOCH if given is None else txn.producer_epoch
    elif given is None:
        pass
    elif given == txn.producer_epoch or txn.producer_epoch == NO_EPOCH:
        last = txn.producer_epoch
    elif given == txn.last_producer_epoch:
        epoch, last = txn.producer_epoch, txn.last_producer_epoch  # a retry: the response was lost
    else:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    return txn.transition_to(
        S.EMPTY,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        last_update_ms=now_ms,
    )
