"""Fetch requests and sessions of a follower (R-310 to R-322)."""

from __future__ import annotations

import random

import pytest

from ottla.broker.replication.fetcher.fetch_state import (
    MAX_NEW_PARTITIONS_PER_REQUEST,
    AppendOutcome,
    DivergedOutcome,
    FetchOutcome,
    FollowerFetchState,
    OffsetTruncationState,
    OutOfRangeOutcome,
    PartitionKey,
    compute_truncation,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

TOPIC, OTHER = bytes(15) + b"\x07", bytes(15) + b"\x08"
A, B, C = (TOPIC, 0), (TOPIC, 1), (OTHER, 0)


def following(*keys: PartitionKey) -> FollowerFetchState:
    out = FollowerFetchState(2, 77)
    for key in keys:
        out.add_partition(key, 5, 100, 4, 10)
    return out


def row(partition: int = 0, error: ErrorCode = ErrorCode.NONE, **fields: object) -> PartitionData:
    return PartitionData(partition, error, 90, log_start_offset=12, records=b"batches", **fields)  # type: ignore[arg-type]


def answer(*rows: tuple[PartitionKey, PartitionData], session: int = 0, error: int = 0) -> FetchResponse:
    topics = [FetchableTopicResponse(topic_id=key[0], partitions=[data]) for key, data in rows]
    return FetchResponse(error_code=error, session_id=session, responses=topics)


def requested(request: FetchRequest | None) -> list[PartitionKey]:
    assert request is not None
    return [(t.topic_id, p.partition) for t in request.topics for p in t.partitions]


def forgotten(request: FetchRequest | None) -> list[PartitionKey]:
    assert request is not None
    return [(t.topic_id, p) for t in request.forgotten_topics_data for p in t.partitions]


def session(request: FetchRequest | None) -> tuple[int, int]:
    assert request is not None
    return request.session_id, request.session_epoch


def test_build_fetch_fills_request_fields() -> None:
    """R-313."""
    request = following(A).build_fetch(0)
    assert request is not None
    assert request == FetchRequest(
        replica_state=ReplicaState(2, 77),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 * 1024 * 1024,
        session_id=0,
        session_epoch=0,
        topics=[FetchTopic("", TOPIC, [FetchPartition(0, 5, 100, 4, 10, 1024 * 1024)])],
    )
    assert (request.isolation_level, request.rack_id, request.cluster_id) == (0, "", None)
    assert request.topics[0].partitions[0].high_watermark == 2**63 - 1


def test_build_fetch_groups_partitions_by_topic() -> None:
    request = following(A, C, B).build_fetch(0)
    assert request is not None
    assert [(t.topic_id, [p.partition for p in t.partitions]) for t in request.topics] == [
        (TOPIC, [0, 1]),
        (OTHER, [0]),
    ]


def test_build_fetch_without_partitions_returns_none_and_retries_after_1_s() -> None:
    """R-314."""
    absent = following()
    assert absent.build_fetch(0) is None
    assert absent.next_fetch_ms(50) == 1050


def test_incremental_fetch_names_changed_and_forgotten_partitions() -> None:
    """KIP-227: epochs count up from 1 once the leader assigned an id."""
    ours = following(A, B)
    assert session(ours.build_fetch(0)) == (0, 0)
    found = ours.process_response(answer((A, row()), (B, row(1)), session=9), 0)
    assert found == [AppendOutcome(A, b"batches", 90, 12), AppendOutcome(B, b"batches", 90, 12)]
    ours.update_log_state(A, 100, 4, 10)
    ours.update_log_state(B, 120, 5, 12)
    second = ours.build_fetch(0)
    assert (session(second), requested(second), forgotten(second)) == ((9, 1), [B], [])
    assert ours.process_response(answer(session=9), 0) == []
    ours.remove_partition(A)
    ours.add_partition(C, 1, 0, -1, 0)
    third = ours.build_fetch(0)
    assert (session(third), requested(third), forgotten(third)) == ((9, 2), [C], [A])
    assert ours.process_response(answer((B, row(1)), session=9), 0) == [AppendOutcome(B, b"batches", 90, 12)]


def test_session_epoch_wraps_to_one() -> None:
    ours = following(A)
    ours.build_fetch(0)
    ours.process_response(answer((A, row()), session=9), 0)
    ours.update_log_state(A, 100, 4, 10)
    ours._session_epoch = 2**31 - 2
    for expected in (2**31 - 2, 2**31 - 1, 1):
        assert session(ours.build_fetch(0)) == (9, expected)
        ours.process_response(answer(session=9), 0)


def test_leader_without_sessions_gets_full_requests() -> None:
    ours = following(A, B)
    for _ in range(2):
        request = ours.build_fetch(0)
        assert (session(request), requested(request)) == ((0, 0), [A, B])
        ours.process_response(answer((A, row()), (B, row(1))), 0)
        ours.update_log_state(A, 100, 4, 10)
        ours.update_log_state(B, 100, 4, 10)


def open_session(*keys: PartitionKey) -> FollowerFetchState:
    """Return a state with all partitions in session 9 and the second request under way."""
    ours = following(*keys)
    ours.build_fetch(0)
    ours.process_response(answer(*((k, row(k[1])) for k in keys), session=9), 0)
    for key in keys:
        ours.update_log_state(key, 100, 4, 10)
    ours.build_fetch(0)
    return ours


@pytest.mark.parametrize(
    ("code", "next_session", "wait_ms"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0), 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (9, 0), 0),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, (9, 0), 20),
        (ErrorCode.UNKNOWN_SERVER_ERROR, (9, 0), 20),
    ],
)
def test_top_level_error_starts_new_session(code: ErrorCode, next_session: tuple[int, int], wait_ms: int) -> None:
    """R-315: a full request under the old id closes the open session; two errors need no delay."""
    ours = open_session(A, B)
    assert ours.process_response(answer((A, row()), error=code, session=9), 50) == []
    assert ours.next_fetch_ms(50) == 50 + wait_ms
    if wait_ms:
        assert ours.build_fetch(50 + wait_ms - 1) is None
    request = ours.build_fetch(50 + wait_ms)
    assert (session(request), requested(request), forgotten(request)) == (next_session, [A, B], [])


def test_connection_failure_backs_off_and_starts_new_session() -> None:
    ours, now = open_session(A), 50
    for pause in (20, 40, 80, 160, 320, 640, 1000, 1000):
        ours.on_connection_failure(now)
        assert ours.build_fetch(now + pause - 1) is None
        now += pause
        assert session(ours.build_fetch(now)) == (9, 0)
    ours.process_response(answer((A, row()), session=9), now)
    ours.on_connection_failure(now)
    ours.update_log_state(A, 101, 4, 10)
    assert ours.next_fetch_ms(now) == now + 20, "it had been reached"


def test_unknown_leader_epoch_backs_off_exponentially() -> None:
    ours, now = following(A), 0
    for pause in (20, 40, 80, 160, 320, 640, 1000, 1000):
        assert requested(ours.build_fetch(now)) == [A]
        ours.process_response(answer((A, row(error=ErrorCode.UNKNOWN_LEADER_EPOCH))), now)
        assert ours.build_fetch(now + pause - 1) is None
        now += pause
    ours.build_fetch(now)
    ours.process_response(answer((A, row())), now)
    ours.update_log_state(A, 101, 4, 10)
    ours.build_fetch(now)
    ours.process_response(
        answer(
            (A, row(error=ErrorCode.UNKNOWN_LEADER_EPOCH)),
        ),
        now,
    )
    assert ours.next_fetch_ms(now) == now + 20, "it had known"


@pytest.mark.parametrize("rows", [[A], [A, B, C], []], ids=["too few", "too many", "none"])
def test_full_response_with_other_partitions_is_refused(rows: list[PartitionKey]) -> None:
    ours = following(A, B)
    ours.build_fetch(0)
    assert ours.process_response(answer(*((k, row(k[1])) for k in rows), session=9), 0) == []
    assert session(ours.build_fetch(0)) == (0, 0)


def test_incremental_response_with_unknown_partition_ends_session() -> None:
    ours = open_session(A)
    assert ours.process_response(answer((A, row()), (C, row()), session=9), 0) == []
    again = ours.build_fetch(0)
    assert (session(again), requested(again)) == ((9, 0), [A])


DIVERGING = EpochEndOffset(3, 80)
LATER = 1000
ROWS: list[tuple[PartitionData, list[FetchOutcome], float | None]] = [
    (row(), [AppendOutcome(A, b"batches", 90, 12)], None),
    (row(diverging_epoch=DIVERGING), [DivergedOutcome(A, 3, 80)], None),
    (row(diverging_epoch=EpochEndOffset(0, 0)), [DivergedOutcome(A, 0, 0)], None),
    (row(error=ErrorCode.OFFSET_OUT_OF_RANGE), [OutOfRangeOutcome(A)], None),
    (row(error=ErrorCode.FENCED_LEADER_EPOCH), [], None),
    (row(error=ErrorCode.UNKNOWN_LEADER_EPOCH), [], LATER),
    (row(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), [], LATER),
    (row(error=ErrorCode.UNKNOWN_TOPIC_ID), [], LATER),
    (row(error=ErrorCode.INCONSISTENT_TOPIC_ID), [], LATER),
    (row(error=ErrorCode.KAFKA_STORAGE_ERROR), [], LATER),
]


@pytest.mark.parametrize(
    ("data", "outcomes", "requested_again_ms"), ROWS, ids=lambda x: str(getattr(x, "error_code", ""))
)
def test_partition_response_determines_outcome_and_delay(
    data: PartitionData, outcomes: list[FetchOutcome], requested_again_ms: float | None
) -> None:
    """R-316: a row that is handed out or fenced is not requested again by itself; every other error waits."""
    ours = following(A)
    ours.build_fetch(0)
    assert ours.process_response(answer((A, data)), 0) == outcomes
    assert ours.build_fetch(0) is None
    later = ours.build_fetch(LATER)
    assert (later is not None) == (requested_again_ms is not None)


@pytest.mark.parametrize("why", ["fenced", "broken"])
def test_fenced_or_failed_partition_is_not_fetched_until_new_epoch(why: str) -> None:
    ours = following(A)
    ours.build_fetch(0)
    ours.process_response(
        answer((A, row(error=ErrorCode.FENCED_LEADER_EPOCH if why == "fenced" else ErrorCode.NONE))), 0
    )
    if why == "broken":
        ours.mark_failed(A)
    ours.add_partition(A, 5, 100, 4, 10)
    assert ours.build_fetch(10**9) is None
    assert ours.next_fetch_ms(0) == 1000
    ours.add_partition(A, 6, 100, 4, 10)
    assert requested(ours.build_fetch(0)) == [A]
    assert ours.next_fetch_ms(0) == 0


def test_partition_being_appended_is_not_fetched() -> None:
    ours = following(A)
    ours.build_fetch(0)
    ours.process_response(answer((A, row())), 0)
    assert ours.next_fetch_ms(0) == 1000


def test_incremental_response_may_contain_all_session_partitions() -> None:
    ours = open_session(A, B)
    assert len(ours.process_response(answer((A, row()), (B, row(1)), session=9), 0)) == 2


def test_delayed_partition_is_forgotten_and_added_again() -> None:
    """The session does not have it meanwhile (R-314)."""
    ours = open_session(A, B)
    ours.process_response(answer(session=9), 0)
    ours.delay(B, 0)
    without = ours.build_fetch(0)
    assert (requested(without), forgotten(without)) == ([], [B])
    ours.process_response(answer(session=9), 0)
    back = ours.build_fetch(1000)
    assert (requested(back), forgotten(back)) == ([B], [])


def test_partition_response_for_other_offset_or_epoch_is_ignored() -> None:
    """R-315: a metadata change or a truncation came between."""
    for change in ("offset", "epoch", "gone"):
        ours = following(A)
        ours.build_fetch(0)
        match change:
            case "offset":
                ours.update_log_state(A, 90, 4, 10)
            case "epoch":
                ours.add_partition(A, 6, 100, 4, 10)
            case "gone":
                ours.remove_partition(A)
        assert ours.process_response(answer((A, row())), 0) == []


def test_add_partition_in_same_epoch_keeps_fetch_offset() -> None:
    """R-317."""
    ours = following(A)
    ours.add_partition(A, 5, 0, -1, 0)
    request = ours.build_fetch(0)
    assert request is not None
    assert request.topics[0].partitions[0].fetch_offset == 100


@pytest.mark.parametrize(
    ("leader", "own", "log_end", "cut"),
    [
        ((4, 80), (4, 95), 100, OffsetTruncationState(80, True)),
        ((4, 95), (4, 80), 100, OffsetTruncationState(80, True)),
        ((4, 95), (4, 98), 90, OffsetTruncationState(90, True)),
        ((2, 30), (2, 20), 100, OffsetTruncationState(20, True)),
        ((9, 70), (-1, -1), 100, OffsetTruncationState(70, True)),
        ((9, 170), (-1, -1), 100, OffsetTruncationState(100, True)),
        ((4, 80), (3, 60), 100, OffsetTruncationState(60, False)),
        ((4, 50), (3, 60), 100, OffsetTruncationState(60, False)),
        ((4, 50), (3, 60), 55, OffsetTruncationState(55, False)),
    ],
    ids=[
        "same, leader's is shorter",
        "same, ours is shorter",
        "never above the end",
        "below all ours",
        "above all ours",
        "above all, longer than ours",
        "missing here",
        "missing here, leader's end counts not",
        "missing here, end",
    ],
)
def test_compute_truncation_by_leader_and_local_epoch_end(
    leader: tuple[int, int], own: tuple[int, int], log_end: int, cut: OffsetTruncationState
) -> None:
    """R-320."""
    assert compute_truncation(*leader, own, log_end) == cut


@pytest.mark.parametrize("at_once", [MAX_NEW_PARTITIONS_PER_REQUEST, 2])
@pytest.mark.parametrize("seed", range(20))
def test_random_changes_keep_leaders_session_equal_to_follower_state(
    seed: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session with incremental requests ends in the state of full requests, in as many requests as it takes."""
    monkeypatch.setattr("ottla.broker.replication.fetcher.fetch_state.MAX_NEW_PARTITIONS_PER_REQUEST", at_once)
    rng = random.Random(seed)
    keys = [(topic, n) for topic in (TOPIC, OTHER) for n in range(4)]
    model: dict[PartitionKey, FetchPartition] = {}
    machine, now, session_id = FollowerFetchState(2, 77), 0.0, 0
    for _ in range(300):
        key, now = rng.choice(keys), now + rng.choice((0, 1, 400))
        match rng.randrange(7):
            case 0:
                machine.add_partition(key, rng.randrange(3), rng.randrange(9), 1, 0)
            case 1:
                machine.remove_partition(key)
            case 2:
                machine.update_log_state(key, rng.randrange(9), 1, 0)
            case 3:
                machine.delay(key, now)
            case 4 if rng.random() < 0.3:
                machine.mark_failed(key)
            case 5 if rng.random() < 0.1:
                machine.on_connection_failure(now)
        request = machine.build_fetch(now)
        if request is None:
            assert not {k for k, p in machine._partitions.items() if not p.is_failed and not p.is_outcome_pending} & {
                k for k, p in machine._partitions.items() if p.not_before_ms <= now
            }
            continue
        if request.session_epoch == 0:
            model = {}
        for topic in request.topics:
            model.update({(topic.topic_id, p.partition): p for p in topic.partitions})
        for gone in request.forgotten_topics_data:
            for number in gone.partitions:
                del model[gone.topic_id, number]
        requested_now = {
            k: (p.leader_epoch, p.fetch_offset)
            for k, p in machine._partitions.items()
            if not p.is_failed and not p.is_outcome_pending and p.not_before_ms <= now
        }
        known = {k: (p.current_leader_epoch, p.fetch_offset) for k, p in model.items()}
        assert known.items() <= requested_now.items()
        assert len(known) == len(requested_now) or request.max_wait_ms == 0
        session_id = session_id or 9
        rows = [(k, row(k[1], rng.choice(list(E3)))) for k in model if request.session_epoch == 0 or rng.random() < 0.3]
        machine.process_response(answer(*rows, session=session_id), now)


E3 = (ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE)
