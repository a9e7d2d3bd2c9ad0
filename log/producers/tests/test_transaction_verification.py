"""Verification of transactional appends by a leader: C-144, C-145, C-147 to C-149.

Sources: ``ProducerAppendInfo.java``, ``VerificationStateEntry.java``, ``UnifiedLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from ottla.jobs.state_machine import VerificationGuard
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.transaction_verification import VERIFICATION_DISABLED, TxnAppendContext
from ottla.log.tests.log_fixtures import (
    NOW,
    UNVERIFIED_TXN,
    append_committed,
    make_batch,
    make_marker,
    make_transactional_batch,
    memory_disk,
    new_log,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT, set_offset_and_epoch
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, build_end_transaction_batch

FENCED, STATE, GAP = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)
ZOMBIE = ErrorCode.TRANSACTION_COORDINATOR_FENCED
PID = 9
TOP = 32767


def empty_log() -> PartitionLog:
    return new_log(memory_disk().session(), LogConfig())


def data(epoch: int, sequence: int, *, txn: bool = True, count: int = 1) -> bytearray:
    attributes = TRANSACTIONAL_BIT if txn else 0
    return make_batch(0, count, producer_id=PID, producer_epoch=epoch, base_sequence=sequence, attributes=attributes)


def ending(epoch: int, coordinator_epoch: int = 0, kind: int = ControlRecordType.COMMIT) -> bytearray:
    return bytearray(build_end_transaction_batch(EndTransactionMarker(kind, coordinator_epoch), PID, epoch, NOW))


def refusal(log: PartitionLog, raw: bytearray, origin: AppendOrigin, txn: TxnAppendContext) -> ErrorCode | None:
    end = log.log_end_offset
    try:
        log.append_as_leader(raw, 0, NOW, origin, txn=txn)
    except ProtocolError as error:
        assert log.log_end_offset == end, "rejected batch is not written"
        return error.code
    assert log.log_end_offset > end
    return None


class MarkerCase(NamedTuple):
    case: str
    before: list[bytearray]
    epoch: int
    version: int
    refused: ErrorCode | None
    coordinator_epoch: int = 0


OPEN, SHUT = [data(5, 0)], [data(5, 0), ending(5)]
MARKERS = [
    MarkerCase("unknown producer", [], 3, 2, None),
    MarkerCase("version 1, the open epoch", OPEN, 5, 1, None),
    MarkerCase("version 1, a newer epoch", OPEN, 6, 1, None),
    MarkerCase("version 1, an older epoch", OPEN, 4, 1, FENCED),
    MarkerCase("version 0, an older epoch", OPEN, 4, 0, FENCED),
    MarkerCase("version 1, repeated", SHUT, 5, 1, None),
    MarkerCase("version 2, one above the open epoch", OPEN, 6, 2, None),
    MarkerCase("version 2, the open epoch: late marker", OPEN, 5, 2, FENCED),
    MarkerCase("version 2, an older epoch", OPEN, 4, 2, FENCED),
    MarkerCase("version 2, repeated, no open transaction", SHUT, 5, 2, None),
    MarkerCase("version 2, older epoch, no open transaction", SHUT, 4, 2, FENCED),
    MarkerCase("version 2, the last epoch there is", [data(TOP, 0)], TOP, 2, None),
    MarkerCase("version 1, an older coordinator", [data(5, 0), ending(5, 7)], 5, 1, ZOMBIE, 6),
    MarkerCase("the same coordinator", [data(5, 0), ending(5, 7)], 5, 1, None, 7),
    MarkerCase("epoch is checked before coordinator epoch", [data(5, 0), ending(5, 7)], 4, 1, FENCED, 6),
]


@pytest.mark.behaviour("C-144", "P-83")
@pytest.mark.parametrize("row", MARKERS, ids=lambda row: row.case)
def test_append_marker_checks_epoch_and_coordinator_epoch(row: MarkerCase) -> None:
    log = empty_log()
    for raw in row.before:
        append_committed(log, bytearray(raw))
    raw = ending(row.epoch, row.coordinator_epoch)
    assert refusal(log, raw, AppendOrigin.COORDINATOR, TxnAppendContext(transaction_version=row.version)) is row.refused


@pytest.mark.behaviour("C-144")
def test_append_as_follower_accepts_every_marker() -> None:
    log = empty_log()
    append_committed(log, data(5, 0))
    append_committed(log, ending(5, 7))
    late = ending(4, 6)
    set_offset_and_epoch(late, 0, 2, 0)
    log.append_as_follower(late, NOW)
    assert log.log_end_offset == 3


@pytest.mark.behaviour("C-145")
def test_append_marker_without_transaction_sets_epoch_and_aborts_no_transaction() -> None:
    log = empty_log()
    append_committed(log, data(5, 0, txn=False))
    append_committed(log, ending(6, kind=ControlRecordType.ABORT))
    assert log.segments.active.aborted_txns == []
    producer = log.producers.producers[PID]
    assert (producer.epoch, producer.batches) == (6, ())
    assert refusal(log, data(6, 1, txn=False), AppendOrigin.CLIENT, TxnAppendContext()) is GAP
    assert refusal(log, data(6, 0, txn=False), AppendOrigin.CLIENT, TxnAppendContext()) is None


class DataBatchCase(NamedTuple):
    case: str
    before: list[bytearray]
    epoch: int
    sequence: int
    guard: str | None
    """``own``, ``foreign``, ``off``: verification is off; None: no guard."""
    refused: ErrorCode | None
    bumps: bool = True
    lowest: int | None = None
    """Sequence of another batch during the verification."""
    origin: AppendOrigin = AppendOrigin.CLIENT


BATCHES = [
    DataBatchCase("confirmed", [], 5, 0, "own", None),
    DataBatchCase("not confirmed", [], 5, 0, None, STATE),
    DataBatchCase("confirmed by another answer", [], 5, 0, "foreign", STATE),
    DataBatchCase("verification is off", [], 5, 0, "off", None),
    DataBatchCase("one is open", OPEN, 5, 1, None, None),
    DataBatchCase("one is open under an older epoch", OPEN, 6, 0, None, STATE),
    DataBatchCase("the last one has ended", SHUT, 5, 1, None, STATE),
    DataBatchCase("the last one has ended, and this is confirmed", SHUT, 5, 1, "own", None, bumps=False),
    DataBatchCase("older epoch is checked before the guard", SHUT, 4, 0, None, FENCED),
    DataBatchCase("an older epoch while one is open", OPEN, 4, 0, None, FENCED),
    DataBatchCase("149: epoch bumps, no state, not the first", [], 5, 3, "own", GAP),
    DataBatchCase("149: no state, not the first", [], 5, 3, "own", None, bumps=False),
    DataBatchCase("149: beyond the lowest that was seen", [], 5, 3, "own", GAP, bumps=False, lowest=2),
    DataBatchCase("149: the lowest that was seen", [], 5, 2, "own", None, bumps=False, lowest=2),
    DataBatchCase("149: a new epoch begins elsewhere", SHUT, 6, 3, "own", GAP, bumps=False),
    DataBatchCase("149: a gap within the open one", OPEN, 5, 2, None, GAP),
    DataBatchCase("a coordinator's has no sequence", SHUT, 5, 0, "own", None, origin=AppendOrigin.COORDINATOR),
    DataBatchCase("a coordinator's must be confirmed too", SHUT, 5, 0, None, STATE, origin=AppendOrigin.COORDINATOR),
    DataBatchCase("a coordinator's of an older epoch", SHUT, 4, 0, None, FENCED, origin=AppendOrigin.COORDINATOR),
]


@pytest.mark.behaviour("C-147", "C-149")
@pytest.mark.parametrize("row", BATCHES, ids=lambda row: row.case)
def test_append_transactional_batch_requires_its_verification_guard(row: DataBatchCase) -> None:
    log = empty_log()
    for raw in row.before:
        append_committed(log, bytearray(raw))
    guard: VerificationGuard | None = None
    if row.guard in ("own", "foreign"):
        guard = log.producers.maybe_start_verification(PID, row.epoch, row.sequence, NOW, bumps=row.bumps)
        if row.lowest is not None:
            assert log.producers.maybe_start_verification(PID, row.epoch, row.lowest, NOW, bumps=row.bumps) is guard
    if row.guard == "foreign":
        guard = VerificationGuard()
    if row.guard == "off":
        guard = VERIFICATION_DISABLED
    raw = data(row.epoch, row.sequence)
    assert refusal(log, raw, row.origin, TxnAppendContext(guard)) is row.refused


def test_append_duplicate_after_end_of_transaction_returns_duplicate() -> None:
    log = empty_log()
    for raw in (data(5, 0), ending(5)):
        append_committed(log, raw)
    assert log.append_as_leader(data(5, 0), 0, NOW).duplicate


@pytest.mark.behaviour("C-145")
def test_append_non_transactional_batch_in_open_transaction_raises_invalid_txn_state() -> None:
    log = empty_log()
    append_committed(log, data(5, 0))
    assert refusal(log, data(5, 1, txn=False), AppendOrigin.CLIENT, TxnAppendContext()) is STATE
    assert refusal(log, data(6, 0, txn=False), AppendOrigin.CLIENT, TxnAppendContext()) is STATE
    assert refusal(log, data(5, 2, txn=False), AppendOrigin.CLIENT, TxnAppendContext()) is GAP
    append_committed(log, ending(5))
    assert refusal(log, data(5, 1, txn=False), AppendOrigin.CLIENT, TxnAppendContext()) is None


def start_verification(log: PartitionLog, epoch: int = 5, *, bumps: bool = False) -> VerificationGuard:
    guard = log.producers.maybe_start_verification(PID, epoch, 0, NOW, bumps=bumps)
    assert guard is not None
    return guard


@pytest.mark.behaviour("C-147")
def test_maybe_start_verification_open_transaction_or_older_epoch_returns_no_guard() -> None:
    log = empty_log()
    append_committed(log, data(5, 0))
    assert log.producers.maybe_start_verification(PID, 5, 1, NOW, bumps=True) is None
    assert log.producers.maybe_start_verification(PID, 6, 0, NOW, bumps=True) is not None, (
        "the transaction of the older epoch has ended"
    )
    with pytest.raises(ProtocolError) as raised:
        log.producers.maybe_start_verification(PID, 4, 0, NOW, bumps=True)
    assert raised.value.code is FENCED


@pytest.mark.behaviour("C-148")
def test_append_first_batch_removes_the_guard() -> None:
    log = empty_log()
    guard = start_verification(log)
    assert start_verification(log) is guard, "same guard for a second request"
    log.append_as_leader(data(5, 0), 0, NOW, txn=TxnAppendContext(guard))
    assert log.producers.verification_states == {}


@pytest.mark.behaviour("C-148")
def test_abort_marker_before_append_invalidates_the_guard() -> None:
    log = empty_log()
    guard = start_verification(log)
    append_committed(log, ending(5, kind=ControlRecordType.ABORT))
    assert refusal(log, data(5, 0), AppendOrigin.CLIENT, TxnAppendContext(guard)) is STATE
    again = start_verification(log)
    assert again is not guard
    assert refusal(log, data(5, 0), AppendOrigin.CLIENT, TxnAppendContext(guard)) is STATE, (
        "guard of the earlier verification"
    )
    assert refusal(log, data(5, 0), AppendOrigin.CLIENT, TxnAppendContext(again)) is None


@pytest.mark.behaviour("C-148")
def test_marker_of_previous_transaction_keeps_guard_of_next() -> None:
    """With transaction version 2 the marker of a transaction has the epoch of the next one."""
    log = empty_log()
    guard = start_verification(log, 6, bumps=True)
    log.append_as_leader(ending(6), 0, NOW, AppendOrigin.COORDINATOR, txn=TxnAppendContext(transaction_version=2))
    assert refusal(log, data(6, 0), AppendOrigin.CLIENT, TxnAppendContext(guard)) is None


@pytest.mark.behaviour("C-148")
def test_append_as_follower_marker_removes_the_guard() -> None:
    log = empty_log()
    guard = start_verification(log)
    log.append_as_follower(ending(5), NOW)
    assert refusal(log, data(5, 0), AppendOrigin.CLIENT, TxnAppendContext(guard)) is STATE


@pytest.mark.behaviour("C-148")
def test_verification_guards_expire_with_producers_and_on_truncation() -> None:
    log = empty_log()
    start_verification(log)
    list(log.producers.expire_job(NOW + 999, 1000))
    assert log.producers.verification_states
    list(log.producers.expire_job(NOW + 1000, 1000))
    assert log.producers.verification_states == {}
    append_committed(log, make_batch(0))
    start_verification(log)
    log.truncate_to(0, NOW)
    assert log.producers.verification_states == {}


def test_maybe_start_verification_newer_epoch_resets_lowest_sequence() -> None:
    log = empty_log()
    assert log.producers.maybe_start_verification(
        PID, 5, 3, NOW, bumps=False
    ) is log.producers.maybe_start_verification(PID, 6, 8, NOW, bumps=False)
    log.producers.maybe_start_verification(PID, 5, 0, NOW, bumps=False)
    assert (log.producers.verification_states[PID].epoch, log.producers.verification_states[PID].lowest_sequence) == (
        6,
        8,
    )


def test_end_transaction_batch_equals_kafkas_bytes() -> None:
    assert bytes(ending(5, 7))[61:] == bytes(make_marker(PID, 1, 5, 7))[61:]
    log = empty_log()
    append_committed(log, make_transactional_batch(PID, 0))
    log.append_as_leader(ending(0), 0, NOW, AppendOrigin.COORDINATOR, txn=UNVERIFIED_TXN)
    header = next(h for h, _ in log.segments.batches(1))
    assert (header.producer_id, header.base_sequence, header.attributes) == (PID, -1, 0x30)
