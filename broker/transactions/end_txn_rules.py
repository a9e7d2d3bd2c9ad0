"""Decision on EndTxn by the transaction's state and the producer epoch.

There are separate tables for the two versions of the protocol. A retry after a lost response succeeds once the
transaction is completed, and gets CONCURRENT_TRANSACTIONS before. With an epoch for each transaction (KIP-890) a retry
is recognised by its epoch, else only by the outcome.

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
    """Action of the coordinator for a valid EndTxn: write the decision, or reply to a retry of a completed one."""

    PREPARE = "the decision is written"
    ALREADY_COMPLETE = "it has ended like that already"


StateAndResult = tuple[TransactionState, bool]
"""State of the transaction, and True for a commit or False for an abort."""
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
"""Decisions on retries with an epoch for each transaction: the request has the epoch before the current one."""
TV1_DECISIONS: Mapping[StateAndResult, EndTxnDecision | ErrorCode] = {
    **RETRY_DECISIONS,
    (S.EMPTY, False): ErrorCode.INVALID_TXN_STATE,
    (S.EMPTY, True): ErrorCode.INVALID_TXN_STATE,
    (S.ONGOING, False): EndTxnDecision.PREPARE,
    (S.ONGOING, True): EndTxnDecision.PREPARE,
}
"""Decisions without epoch bumps (transaction.version 0 and 1): a retry looks the same as the first request."""
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
"""Decisions on first requests with an epoch for each transaction: the request has the current epoch. Aborting an empty
transaction bumps the epoch. In a state that is not listed the producer gets PRODUCER_FENCED.
"""


def decide_without_epoch_bump(
    txn: TransactionMetadata, producer_id: int, epoch: int, *, commits: bool, is_pending: bool
) -> EndTxnDecision:
    """Return the decision for a producer whose epoch does not change (EndTxn up to v4).

    ``is_pending``: a transition of the transactional id is not committed yet.

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
        ProtocolError: as `decide_without_epoch_bump`, but a pending transition is checked first, since the request may
            already have the producer id and epoch of that transition.
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
