"""Whether a transaction may end as its producer wants, by the state it is in and the epoch that is named.

Two tables, for the two versions of the protocol. What a producer asks for a second time, because it did not hear the
first answer, is answered as if it had worked. Where each transaction has an epoch of its own that can be told by it;
else only by the outcome.

Source: ``TransactionCoordinator.endTransactionWithTV1``, ``endTransaction`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ottla.broker.txn.state import LARGEST_EPOCH, PREPARED, S, Transaction, TransactionState
from ottla.wire.errors import ErrorCode, ProtocolError

E = ErrorCode


class Verdict(Enum):
    """What is to be done for a producer that is right."""

    PREPARE = "the decision is written"
    DONE = "it has ended like that already"


Row = tuple[TransactionState, bool]
"""A state, and whether a commit is wanted."""
RETRIED: Mapping[Row, Verdict | ErrorCode] = {
    (S.PREPARE_ABORT, False): E.CONCURRENT_TRANSACTIONS,
    (S.PREPARE_ABORT, True): E.INVALID_TXN_STATE,
    (S.PREPARE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.PREPARE_COMMIT, True): E.CONCURRENT_TRANSACTIONS,
    (S.COMPLETE_ABORT, False): Verdict.DONE,
    (S.COMPLETE_ABORT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, False): E.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, True): Verdict.DONE,
}
"""Who asks once more for an end that is decided. With epochs of their own: the producer names the epoch before the one
in force.
"""
CLASSIC: Mapping[Row, Verdict | ErrorCode] = {
    **RETRIED,
    (S.EMPTY, False): E.INVALID_TXN_STATE,
    (S.EMPTY, True): E.INVALID_TXN_STATE,
    (S.ONGOING, False): Verdict.PREPARE,
    (S.ONGOING, True): Verdict.PREPARE,
}
"""Where the epoch stays, nothing tells the first time from the second."""
CURRENT: Mapping[Row, Verdict | ErrorCode] = {
    (S.EMPTY, False): Verdict.PREPARE,
    (S.EMPTY, True): E.INVALID_TXN_STATE,
    (S.ONGOING, False): Verdict.PREPARE,
    (S.ONGOING, True): Verdict.PREPARE,
    (S.COMPLETE_ABORT, False): Verdict.PREPARE,
    (S.COMPLETE_ABORT, True): E.INVALID_TXN_STATE,
    (S.COMPLETE_COMMIT, False): Verdict.PREPARE,
    (S.COMPLETE_COMMIT, True): E.INVALID_TXN_STATE,
}
"""With epochs of their own: the producer names the one in force. An abort of nothing gives it another one."""


def classic(txn: Transaction, producer_id: int, epoch: int, *, commits: bool, is_pending: bool) -> Verdict:
    """The verdict for a producer whose epoch stays (EndTxn up to v4).

    Raises:
        ProtocolError: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    if txn.producer_id != producer_id:
        raise ProtocolError(E.INVALID_PRODUCER_ID_MAPPING)
    if txn.producer_epoch != epoch:
        raise ProtocolError(E.PRODUCER_FENCED)
    if is_pending:
        raise ProtocolError(E.CONCURRENT_TRANSACTIONS)
    return _said(CLASSIC[txn.state, commits])


def with_bump(txn: Transaction, producer_id: int, epoch: int, *, commits: bool, is_pending: bool) -> Verdict:
    """The verdict for a producer that gets another epoch with each transaction (EndTxn v5).

    Raises:
        ProtocolError: as `classic`, but a transition on its way comes first: the producer may name what it brings.
    """
    if is_pending:
        raise ProtocolError(E.CONCURRENT_TRANSACTIONS)
    before_it_went_over = (
        producer_id == txn.previous_producer_id and epoch == LARGEST_EPOCH - 1 and txn.producer_epoch == 0
    )
    if txn.producer_id != producer_id and not before_it_went_over:
        raise ProtocolError(E.INVALID_PRODUCER_ID_MAPPING)
    retries = epoch == txn.producer_epoch - 1 or (before_it_went_over and txn.state not in PREPARED)
    if not retries and epoch != txn.producer_epoch:
        raise ProtocolError(E.PRODUCER_FENCED)
    table = RETRIED if retries else CURRENT
    return _said(table.get((txn.state, commits), E.PRODUCER_FENCED))


def _said(found: Verdict | ErrorCode) -> Verdict:
    if isinstance(found, ErrorCode):
        raise ProtocolError(found)
    return found
