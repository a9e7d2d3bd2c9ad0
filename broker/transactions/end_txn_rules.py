"""Decision on EndTxn by the transaction's state and the producer epoch.

Two tables, for the two versions of the protocol. A repeated request, after a lost response, succeeds. With an epoch per
transaction it is recognised by its epoch; else only by the outcome.

Source: ``TransactionCoordinator.endTransactionWithTV1``, ``endTransaction`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ottla.broker.transactions.transaction_metadata import (
    MAX_PRODUCER_EPOCH,
    PREPARED_STATES,
    S,
    TransactionMetadata,
    TransactionState,
)
from ottla.wire.errors import ErrorCode, ProtocolError


class EndTxnDecision(Enum):
    """Action for a valid request."""

    PREPARE = "the decision is written"
    ALREADY_COMPLETE = "it has ended like that already"


StateAndResult = tuple[TransactionState, bool]
"""A state, and whether a commit is wanted."""
RETRY_DECISIONS: Mapping[StateAndResult, EndTxnDecision | ErrorCode] = {
    (S.PREPARE_ABORT, False): ErrorCode.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (S.PREPARE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (S.PREPARE_COMMIT, True): ErrorCode.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_ABORT, False): EndTxnDecision.ALREADY_COMPLETE,
    (S.COMPLETE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, False): ErrorCode.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, True): EndTxnDecision.ALREADY_COMPLETE,
}
"""Repeated requests with an epoch per transaction: the producer sends the epoch before the current one."""
TV1_DECISIONS: Mapping[StateAndResult, EndTxnDecision | ErrorCode] = {
    **RETRY_DECISIONS,
    (S.EMPTY, False): ErrorCode.INVALID_TXN_STATE,
    (S.EMPTY, True): ErrorCode.INVALID_TXN_STATE,
    (S.ONGOING, False): EndTxnDecision.PREPARE,
    (S.ONGOING, True): EndTxnDecision.PREPARE,
}
"""Without epoch bumps a repeated request cannot be distinguished from the first."""
TV2_DECISIONS: Mapping[StateAndResult, EndTxnDecision | ErrorCode] = {
    (S.EMPTY, False): EndTxnDecision.PREPARE,
    (S.EMPTY, True): ErrorCode.INVALID_TXN_STATE,
    (S.ONGOING, False): EndTxnDecision.PREPARE,
    (S.ONGOING, True): EndTxnDecision.PREPARE,
    (S.COMPLETE_ABORT, False): EndTxnDecision.PREPARE,
    (S.COMPLETE_ABORT, True): ErrorCode.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, False): EndTxnDecision.PREPARE,
    (S.COMPLETE_COMMIT, True): ErrorCode.INVALID_TXN_STATE,
}
"""First requests with an epoch per transaction: the producer sends the current one. Aborting an empty transaction
bumps it.
"""


def decide_without_epoch_bump(
    txn: TransactionMetadata, producer_id: int, epoch: int, *, commits: bool, is_pending: bool
) -> EndTxnDecision:
    """Return the decision for a producer whose epoch stays (EndTxn up to v4).

    Raises:
        ProtocolError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    if txn.producer_id != producer_id:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if txn.producer_epoch != epoch:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    if is_pending:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return _raise_if_error(TV1_DECISIONS[txn.state, commits])


def decide_with_epoch_bump(
    txn: TransactionMetadata, producer_id: int, epoch: int, *, commits: bool, is_pending: bool
) -> EndTxnDecision:
    """Return the decision for a producer with a new epoch for each transaction (EndTxn v5).

    Raises:
        ProtocolError: as `decide_without_epoch_bump`, but a transition on its way comes first: the producer may name
            what it brings.
    """
    if is_pending:
        raise ProtocolError(ErrorCode.CONCURRENT_TRANSACTIONS)
    before_it_went_over = (
        producer_id == txn.previous_producer_id and epoch == MAX_PRODUCER_EPOCH - 1 and txn.producer_epoch == 0
    )
    if txn.producer_id != producer_id and not before_it_went_over:
        raise ProtocolError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    retries = epoch == txn.producer_epoch - 1 or (before_it_went_over and txn.state not in PREPARED_STATES)
    if not retries and epoch != txn.producer_epoch:
        raise ProtocolError(ErrorCode.PRODUCER_FENCED)
    table = RETRY_DECISIONS if retries else TV2_DECISIONS
    return _raise_if_error(table.get((txn.state, commits), ErrorCode.PRODUCER_FENCED))


def _raise_if_error(found: EndTxnDecision | ErrorCode) -> EndTxnDecision:
    if isinstance(found, ErrorCode):
        raise ProtocolError(found)
    return found
