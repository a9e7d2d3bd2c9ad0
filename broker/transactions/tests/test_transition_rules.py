"""Rules of transaction state transitions, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.transactions import add_partitions, end_transitions, end_txn_rules, init_producer_id
from ottla.broker.transactions.end_txn_rules import EndTxnDecision
from ottla.broker.transactions.transaction_metadata import (
    IDLE_STATES,
    PREPARED_STATES,
    STATES_BY_NAME,
    VALID_PREVIOUS_STATES,
    S,
    TransactionMetadata,
    TransactionState,
)
from ottla.wire.errors import ErrorCode, ProtocolError

NOW = 5_000
ONE = frozenset({("t", 0)})


def txn(state: TransactionState = S.EMPTY, pid: int = 10, epoch: int = 4, **more: Any) -> TransactionMetadata:
    started = -1 if state is S.EMPTY else 1_000
    given: dict[str, Any] = {"partitions": ONE if state in {S.ONGOING, *PREPARED_STATES} else frozenset(), **more}
    return TransactionMetadata(pid, epoch, 9_000, state, start_ms=started, last_update_ms=2_000, **given)


def fresh() -> int:
    return 99


def none_left() -> int:
    raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


# ---------------------------------------------------------------------- states


LEGAL = """
EMPTY: EMPTY COMPLETE_COMMIT COMPLETE_ABORT
ONGOING: ONGOING EMPTY COMPLETE_COMMIT COMPLETE_ABORT
PREPARE_COMMIT: ONGOING
PREPARE_ABORT: ONGOING PREPARE_EPOCH_FENCE EMPTY COMPLETE_COMMIT COMPLETE_ABORT
COMPLETE_COMMIT: PREPARE_COMMIT
COMPLETE_ABORT: PREPARE_ABORT
DEAD: EMPTY COMPLETE_ABORT COMPLETE_COMMIT
PREPARE_EPOCH_FENCE: ONGOING
"""


@pytest.mark.behaviour("C-111")
@pytest.mark.parametrize("line", LEGAL.strip().splitlines())
def test_valid_previous_states_of_each_state(line: str) -> None:
    name, _, before = line.partition(":")
    allowed = {S[x] for x in before.split()}
    assert VALID_PREVIOUS_STATES[S[name]] == allowed
    for state in S:
        if state in allowed:
            assert txn(state).transition_to(S[name]).state is S[name]
        else:
            with pytest.raises(AssertionError):
                txn(state).transition_to(S[name])


def test_state_names_equal_kafkas() -> None:
    titles = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
    assert [state.state_name for state in S] == titles
    assert STATES_BY_NAME["PrepareEpochFence"] is S.PREPARE_EPOCH_FENCE
    assert {s.state_name for s in IDLE_STATES} == {"Empty", "CompleteCommit", "CompleteAbort"}


@pytest.mark.behaviour("C-113")
def test_transition_to_ongoing_records_previous_producer_id() -> None:
    assert txn(S.EMPTY, pid=10, previous_producer_id=3).transition_to(S.ONGOING).previous_producer_id == 10


# ---------------------------------------------------------------------- InitProducerId, C-120

Row = tuple[str, TransactionMetadata, Any, Any]


def begin(known: TransactionMetadata, expected: Any) -> Any:
    try:
        init_producer_id.check_expected_producer(known, expected)
        after = init_producer_id.prepare_init_producer_id(known, expected, 7_000, NOW, fresh)
    except ProtocolError as error:
        return error.code
    assert (after.state, after.partitions, after.start_ms) == (S.EMPTY, frozenset(), -1)
    assert (after.last_update_ms, after.timeout_ms) == (NOW, 7_000)
    return after.producer_id, after.producer_epoch, after.last_producer_epoch


@pytest.mark.behaviour("C-120")
@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "code"),
    [
        ("", 1_000, ErrorCode.INVALID_REQUEST),  # row 2
        ("", 0, ErrorCode.INVALID_REQUEST),
        ("x", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),  # row 5
        ("x", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("x", 900_000, ErrorCode.NONE),
        ("x", 1, ErrorCode.NONE),
    ],
)
def test_init_producer_id_invalid_transactional_id_or_timeout_returns_error(
    transactional_id: str, timeout_ms: int, code: ErrorCode
) -> None:
    assert init_producer_id.check_request(transactional_id, timeout_ms, 900_000) is code


LAST = 32_766
ROWS: list[Row] = [
    ("6: an id nobody knows", txn(epoch=-1), None, (10, 0, -1)),
    ("12: the same, for one that goes on", txn(epoch=-1), (77, 5), (10, 0, -1)),
    ("8: another producer id", txn(epoch=4), (77, 4), ErrorCode.PRODUCER_FENCED),
    ("8: the id before, not exhausted", txn(epoch=0, previous_producer_id=9), (9, 5), ErrorCode.PRODUCER_FENCED),
    (
        "8: the id before, exhausted, in vain",
        txn(epoch=0, previous_producer_id=9),
        (9, LAST),
        ErrorCode.PRODUCER_FENCED,
    ),
    (
        "8: the id before, exhausted, a retry",
        txn(epoch=0, previous_producer_id=9, last_producer_epoch=LAST),
        (9, LAST),
        (10, 0, LAST),
    ),
    ("10: exhausted, nothing given", txn(epoch=LAST), None, (99, 0, -1)),
    ("10: exhausted, the current one", txn(epoch=LAST), (10, LAST), (99, 0, LAST)),
    ("10: fenced to the last, the current one", txn(epoch=LAST + 1), (10, LAST + 1), (99, 0, LAST + 1)),
    ("10: exhausted, another one", txn(epoch=LAST), (10, LAST - 1), ErrorCode.UNKNOWN_SERVER_ERROR),
    ("11: nothing given", txn(epoch=4, last_producer_epoch=3), None, (10, 5, -1)),
    ("11: one before exhausted", txn(epoch=LAST - 1), None, (10, LAST, -1)),
    ("12: the current one", txn(epoch=4, last_producer_epoch=3), (10, 4), (10, 5, 4)),
    ("13: the last one", txn(epoch=5, last_producer_epoch=4), (10, 4), (10, 5, 4)),
    ("14: an older one", txn(epoch=5, last_producer_epoch=4), (10, 3), ErrorCode.PRODUCER_FENCED),
    ("14: the last one, forgotten by a move", txn(epoch=5), (10, 4), ErrorCode.PRODUCER_FENCED),
    ("14: a newer one", txn(epoch=5, last_producer_epoch=4), (10, 6), ErrorCode.PRODUCER_FENCED),
]


@pytest.mark.behaviour("C-120")
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("state", sorted(IDLE_STATES), ids=lambda s: s.state_name)
def test_init_producer_id_in_idle_state_by_expected_producer_id_and_epoch(row: Row, state: TransactionState) -> None:
    _, known, expected, outcome = row
    assert begin(known._replace(state=state, start_ms=1_000), expected) == outcome


@pytest.mark.behaviour("C-123")
def test_init_producer_id_with_exhausted_epoch_and_no_ids_raises() -> None:
    with pytest.raises(ProtocolError) as caught:
        init_producer_id.prepare_init_producer_id(txn(epoch=LAST), None, 7_000, NOW, none_left)
    assert caught.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# ---------------------------------------------------------------------- adding


def check(known: TransactionMetadata | None, pid: int, epoch: int) -> ErrorCode:
    try:
        add_partitions.check_producer(known, pid, epoch)
    except ProtocolError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.behaviour("C-127")
@pytest.mark.parametrize(
    ("known", "pid", "epoch", "code"),
    [
        (None, 10, 4, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (txn(), 11, 4, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (txn(), 11, 9, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (txn(), 10, 3, ErrorCode.PRODUCER_FENCED),
        (txn(), 10, 5, ErrorCode.PRODUCER_FENCED),
        (txn(S.PREPARE_COMMIT), 10, 3, ErrorCode.PRODUCER_FENCED),
        (txn(S.PREPARE_COMMIT), 10, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (txn(S.PREPARE_ABORT), 10, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (txn(S.ONGOING), 10, 4, ErrorCode.NONE),
        (txn(S.COMPLETE_ABORT), 10, 4, ErrorCode.NONE),
        (txn(S.EMPTY), 10, 4, ErrorCode.NONE),
    ],
)
def test_add_partitions_check_returns_error_by_state_and_producer(
    known: TransactionMetadata | None, pid: int, epoch: int, code: ErrorCode
) -> None:
    assert check(known, pid, epoch) is code


@pytest.mark.behaviour("C-128")
@pytest.mark.parametrize("state", sorted(IDLE_STATES), ids=lambda s: s.state_name)
def test_add_partitions_in_idle_state_starts_transaction(state: TransactionState) -> None:
    after = add_partitions.prepare_add_partitions(txn(state), ONE, 2, NOW)
    assert after is not None
    assert (after.state, after.start_ms, after.last_update_ms, after.client_transaction_version) == (
        S.ONGOING,
        NOW,
        NOW,
        2,
    )
    assert after.partitions == ONE


@pytest.mark.behaviour("C-128")
def test_add_partitions_to_ongoing_transaction_keeps_start_time() -> None:
    after = add_partitions.prepare_add_partitions(
        txn(S.ONGOING, client_transaction_version=2), frozenset({("t", 1)}), 0, NOW
    )
    assert after is not None
    assert (after.start_ms, after.last_update_ms, after.client_transaction_version) == (1_000, NOW, 0)
    assert after.partitions == {("t", 0), ("t", 1)}


@pytest.mark.behaviour("C-127")
def test_add_partitions_already_present_returns_none() -> None:
    assert add_partitions.prepare_add_partitions(txn(S.ONGOING), ONE, 2, NOW) is None
    assert add_partitions.prepare_add_partitions(txn(S.COMPLETE_COMMIT), frozenset(), 2, NOW) is not None


# ---------------------------------------------------------------------- transitions at the end of a transaction


def verdict(
    rule: Any, known: TransactionMetadata, pid: int, epoch: int, *, commits: bool, pending: bool = False
) -> Any:
    try:
        return rule(known, pid, epoch, commits=commits, is_pending=pending)
    except ProtocolError as error:
        return error.code


@pytest.mark.behaviour("C-131")
@pytest.mark.parametrize(("commits", "state"), [(True, S.PREPARE_COMMIT), (False, S.PREPARE_ABORT)])
def test_prepare_end_version_1_keeps_epoch(commits: bool, state: TransactionState) -> None:
    after = end_transitions.prepare_abort_or_commit(
        txn(S.ONGOING, last_producer_epoch=3, client_transaction_version=2), NOW, commits=commits
    )
    assert (after.state, after.producer_id, after.producer_epoch, after.last_producer_epoch) == (state, 10, 4, 3)
    assert (after.start_ms, after.last_update_ms, after.client_transaction_version, after.next_producer_id) == (
        1_000,
        NOW,
        0,
        -1,
    )
    assert after.partitions == ONE


@pytest.mark.behaviour("C-132")
@pytest.mark.parametrize(("commits", "state"), [(True, S.PREPARE_COMMIT), (False, S.PREPARE_ABORT)])
def test_prepare_end_version_2_bumps_epoch(commits: bool, state: TransactionState) -> None:
    after = end_transitions.prepare_abort_or_commit_with_epoch_bump(txn(S.ONGOING), NOW, none_left, commits=commits)
    assert (after.state, after.producer_id, after.producer_epoch, after.last_producer_epoch) == (state, 10, 5, 4)
    assert (after.start_ms, after.last_update_ms, after.client_transaction_version, after.next_producer_id) == (
        1_000,
        NOW,
        2,
        -1,
    )


@pytest.mark.behaviour("C-132")
@pytest.mark.parametrize(
    ("epoch", "commits", "marked", "next_id"),
    [
        (LAST - 1, True, LAST, -1),
        (LAST, True, LAST + 1, 99),
        (LAST, False, LAST + 1, 99),
        (LAST + 1, False, LAST + 1, 99),
    ],
)
def test_prepare_end_with_exhausted_epoch_allocates_new_producer_id(
    epoch: int,
    commits: bool,
    marked: int,
    next_id: int,
) -> None:
    after = end_transitions.prepare_abort_or_commit_with_epoch_bump(
        txn(S.ONGOING, epoch=epoch), NOW, fresh, commits=commits
    )
    assert (after.producer_id, after.producer_epoch, after.next_producer_id) == (10, marked, next_id)
    done = end_transitions.prepare_complete(after, NOW + 1)
    expected = (10, marked, epoch) if next_id == -1 else (99, 0, epoch)
    assert (done.producer_id, done.producer_epoch, done.last_producer_epoch) == expected
    assert (done.next_producer_id, done.previous_producer_id) == (-1, 10)


@pytest.mark.behaviour("C-132")
def test_prepare_end_with_exhausted_epoch_and_no_ids_raises() -> None:
    with pytest.raises(ProtocolError):
        end_transitions.prepare_abort_or_commit_with_epoch_bump(
            txn(S.ONGOING, epoch=LAST), NOW, none_left, commits=True
        )


@pytest.mark.behaviour("C-134")
@pytest.mark.parametrize("state", sorted(IDLE_STATES), ids=lambda s: s.state_name)
def test_prepare_abort_without_partitions_starts_now(state: TransactionState) -> None:
    after = end_transitions.prepare_abort_or_commit_with_epoch_bump(txn(state), NOW, fresh, commits=False)
    assert (after.start_ms, after.partitions, after.producer_epoch) == (NOW, frozenset(), 5)


@pytest.mark.behaviour("C-115")
@pytest.mark.parametrize(
    ("before", "state"), [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)]
)
def test_prepare_complete_keeps_start_time(before: TransactionState, state: TransactionState) -> None:
    done = end_transitions.prepare_complete(txn(before, client_transaction_version=2), NOW)
    assert (done.state, done.partitions, done.start_ms, done.last_update_ms) == (state, frozenset(), 1_000, NOW)
    assert (done.producer_id, done.producer_epoch, done.client_transaction_version) == (10, 4, 2)


@pytest.mark.behaviour("C-122")
def test_fence_version_1_bumps_epoch_once() -> None:
    after = end_transitions.prepare_fence_producer_epoch(
        txn(S.ONGOING, last_producer_epoch=3), NOW, none_left, bumps=False
    )
    assert (after.state, after.producer_epoch, after.last_producer_epoch, after.client_transaction_version) == (
        S.PREPARE_ABORT,
        5,
        -1,
        0,
    )
    assert (
        end_transitions.prepare_fence_producer_epoch(
            txn(S.ONGOING, epoch=LAST + 1), NOW, none_left, bumps=False
        ).producer_epoch
        == LAST + 1
    )


@pytest.mark.behaviour("C-135")
def test_fence_version_2_bumps_epoch_once() -> None:
    after = end_transitions.prepare_fence_producer_epoch(txn(S.ONGOING), NOW, none_left, bumps=True)
    assert (after.state, after.producer_epoch, after.last_producer_epoch, after.client_transaction_version) == (
        S.PREPARE_ABORT,
        5,
        4,
        2,
    )
    done = end_transitions.prepare_complete(after, NOW)
    assert verdict(end_txn_rules.decide_with_epoch_bump, done, 10, 4, commits=False) is EndTxnDecision.ALREADY_COMPLETE
    assert verdict(end_txn_rules.decide_with_epoch_bump, done, 10, 4, commits=True) is ErrorCode.INVALID_TXN_STATE
