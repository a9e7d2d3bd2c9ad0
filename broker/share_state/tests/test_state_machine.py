"""Rules of the share coordinator's state (C-231 to C-235), with records encoded as in the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.coordinator.events import ShardLoaded, TimerExpired
from ottla.broker.share_state import records, state_machine
from ottla.broker.share_state.share_group_offsets import UNINITIALIZED_OFFSET, SharePartitionKey
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import share_state_records

TOPIC, GONE = bytes([7]) * 16, bytes([9]) * 16
AT = SharePartitionKey("g", TOPIC, 0)
OTHER = SharePartitionKey("g", TOPIC, 1)
FREE, DONE = 0, 2


class ShareStateFixture:
    """Share state machine with records that are encoded and decoded, as in a log."""

    def __init__(self, updates: int = 2) -> None:
        self.machine = state_machine.ShareStateMachine(
            state_machine.ShareCoordinatorSettings(updates, 1000), lambda topic_id: 2 if topic_id == TOPIC else 0
        )
        self.now, self.offset = 100, 0
        self.log: list[records.ShareRecord] = []

    def do(self, event: Any) -> Any:
        fx = self.machine.handle(self.now, event)
        for record in fx.records:
            stored = records.decode(*records.encode(record))
            assert stored == record
            self.log.append(record)
            self.machine.replay(self.offset, record)
            self.offset += 1
        return fx.replies[0].message if fx.replies else fx

    def begin(self, at: SharePartitionKey = AT, epoch: int = 1, start: int = 10) -> Any:
        return self.do(state_machine.InitializeShareState("t", at, epoch, start))

    def write(self, *batches: PersisterStateBatch, at: SharePartitionKey = AT, **over: int) -> Any:
        acknowledged = {"state_epoch": 1, "leader_epoch": 0, "start_offset": -1, "delivery_complete_count": 0} | over
        return self.do(state_machine.WriteShareState("t", at, **acknowledged, batches=batches))

    def read(self, leader_epoch: int = -1, at: SharePartitionKey = AT) -> Any:
        return self.do(state_machine.ReadShareState("t", at, leader_epoch))

    @property
    def last(self) -> Any:
        return self.log[-1].value


def code(answer: Any) -> ErrorCode:
    assert isinstance(answer, ProtocolError)
    return answer.code


def test_initialize_writes_snapshot_with_next_snapshot_epoch() -> None:
    fixture = ShareStateFixture()
    assert fixture.begin() is True
    assert (fixture.last.snapshot_epoch, fixture.last.state_epoch, fixture.last.start_offset) == (0, 1, 10)
    assert (fixture.last.delivery_complete_count, fixture.last.create_timestamp, fixture.last.write_timestamp) == (
        0,
        100,
        100,
    )
    fixture.begin(epoch=2, start=-1)
    assert (fixture.last.snapshot_epoch, fixture.last.delivery_complete_count) == (1, -1)
    assert fixture.read().start_offset == -1


def test_write_appends_updates_until_snapshot_with_full_state() -> None:
    fixture = ShareStateFixture(updates=2)
    fixture.begin()
    fixture.write(PersisterStateBatch(10, 19, 1, FREE))
    assert isinstance(fixture.last, share_state_records.ShareUpdateValue)
    assert fixture.last.start_offset == -1, "an update says what was said"
    fixture.write(PersisterStateBatch(15, 19, 2, DONE), start_offset=12, delivery_complete_count=5)
    assert isinstance(fixture.last, share_state_records.ShareUpdateValue)
    fixture.now = 300
    fixture.write(PersisterStateBatch(20, 21, 1, FREE), delivery_complete_count=5)
    snapshot = fixture.last
    assert isinstance(snapshot, share_state_records.ShareSnapshotValue)
    assert (snapshot.snapshot_epoch, snapshot.start_offset, snapshot.delivery_complete_count) == (1, 12, 5)
    assert (snapshot.create_timestamp, snapshot.write_timestamp) == (300, 300)
    rows = [(b.first_offset, b.last_offset, b.delivery_count, b.delivery_state) for b in snapshot.state_batches]
    assert rows == [(12, 14, 1, FREE), (15, 19, 2, DONE), (20, 21, 1, FREE)]
    fixture.write(PersisterStateBatch(22, 22, 1, FREE))
    assert isinstance(fixture.last, share_state_records.ShareUpdateValue), "the count begins again"


def test_read_returns_all_written_batches() -> None:
    fixture = ShareStateFixture()
    fixture.begin()
    fixture.write(PersisterStateBatch(10, 19, 1, FREE))
    fixture.write(PersisterStateBatch(12, 13, 2, DONE), start_offset=11, delivery_complete_count=2)
    state = fixture.read()
    assert (state.state_epoch, state.start_offset, state.delivery_complete_count) == (1, 11, 2)
    assert state.batches == (
        PersisterStateBatch(11, 11, 1, FREE),
        PersisterStateBatch(12, 13, 2, DONE),
        PersisterStateBatch(14, 19, 1, FREE),
    )
    assert fixture.do(state_machine.ReadShareStateSummary("t", AT)) == state


@pytest.mark.parametrize(
    ("rule", "event", "expected"),
    [
        (
            "a negative partition",
            state_machine.ReadShareState("t", SharePartitionKey("g", TOPIC, -1), 0),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            "a topic that is gone: begin",
            state_machine.InitializeShareState("t", SharePartitionKey("g", GONE, 0), 1, 0),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            "a partition too many: begin",
            state_machine.InitializeShareState("t", SharePartitionKey("g", TOPIC, 2), 1, 0),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            "a partition too many: forget",
            state_machine.DeleteShareState("t", SharePartitionKey("g", TOPIC, 2)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        (
            "a topic that is gone: look",
            state_machine.ReadShareStateSummary("t", SharePartitionKey("g", GONE, 0)),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ),
        ("read what was never begun", state_machine.ReadShareState("t", OTHER, 0), ErrorCode.INVALID_REQUEST),
        (
            "write what was never begun",
            state_machine.WriteShareState("t", OTHER, 1, 0, 0, 0, ()),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            "write as an older leader",
            state_machine.WriteShareState("t", AT, 5, 6, 0, 0, ()),
            ErrorCode.FENCED_LEADER_EPOCH,
        ),
        ("read as an older leader", state_machine.ReadShareState("t", AT, 6), ErrorCode.FENCED_LEADER_EPOCH),
        (
            "write of an older state",
            state_machine.WriteShareState("t", AT, 4, 7, 0, 0, ()),
            ErrorCode.FENCED_STATE_EPOCH,
        ),
        ("begin an older state", state_machine.InitializeShareState("t", AT, 4, 0), ErrorCode.FENCED_STATE_EPOCH),
        (
            "more batches than can be",
            state_machine.WriteShareState("t", AT, 5, 7, 0, 0, (PersisterStateBatch(0, 0, 1, 0),) * 10_001),
            ErrorCode.INVALID_REQUEST,
        ),
        ("write as nobody's leader, of no epoch", state_machine.WriteShareState("t", AT, -1, -1, 0, 0, ()), True),
        ("forget what nobody knows", state_machine.DeleteShareState("t", OTHER), True),
        ("look at what nobody knows", state_machine.ReadShareStateSummary("t", OTHER), UNINITIALIZED_OFFSET),
    ],
)
def test_share_state_requests_are_validated(rule: str, event: Any, expected: Any) -> None:
    fixture = ShareStateFixture()
    fixture.begin(epoch=5)
    fixture.read(leader_epoch=7)
    before = len(fixture.log)
    answer = fixture.do(event)
    assert (code(answer) if isinstance(expected, ErrorCode) else answer) == expected, rule
    assert not isinstance(expected, ErrorCode) or len(fixture.log) == before, rule


def test_read_with_new_leader_epoch_writes_it_and_fences_older_epochs() -> None:
    fixture = ShareStateFixture()
    fixture.begin()
    fixture.write(PersisterStateBatch(10, 11, 1, FREE))
    assert fixture.read(leader_epoch=3).start_offset == 10
    assert (fixture.last.leader_epoch, fixture.last.start_offset) == (3, 10)
    count = len(fixture.log)
    fixture.read(leader_epoch=3)
    fixture.read(leader_epoch=-1)
    assert len(fixture.log) == count
    assert code(fixture.write(leader_epoch=2)) is ErrorCode.FENCED_LEADER_EPOCH
    fixture.write(leader_epoch=4)
    assert fixture.last.leader_epoch == 3, "only a read takes over the leadership"


def test_delete_writes_tombstone_and_allows_initialization() -> None:
    fixture = ShareStateFixture()
    fixture.begin(epoch=5)
    fixture.do(state_machine.DeleteShareState("t", AT))
    assert fixture.log[-1].value is None
    assert code(fixture.read()) is ErrorCode.INVALID_REQUEST
    assert fixture.begin(epoch=1) is True
    assert fixture.last.snapshot_epoch == 0


def test_deleted_topics_drop_their_states() -> None:
    fixture = ShareStateFixture()
    fixture.begin()
    fixture.begin(OTHER)
    fixture.do(state_machine.TopicsDeleted(frozenset({GONE})))
    assert set(fixture.machine.states.by_key) == {AT, OTHER}
    fixture.do(state_machine.TopicsDeleted(frozenset({TOPIC})))
    assert not fixture.machine.states.by_key


def test_lowest_needed_offset_is_that_of_oldest_last_snapshot() -> None:
    fixture = ShareStateFixture(updates=0)
    assert fixture.machine.states.lowest_needed_offset() is None
    fixture.begin()  # 0
    fixture.begin(OTHER)  # 1
    assert fixture.machine.states.lowest_needed_offset() is None, "all from the first record on"
    fixture.write()  # 2, a snapshot
    assert fixture.machine.states.lowest_needed_offset() == 1
    fixture.write(at=OTHER)  # 3
    assert fixture.machine.states.lowest_needed_offset() == 2
    fixture.do(state_machine.DeleteShareState("t", AT))  # 4
    assert fixture.machine.states.lowest_needed_offset() == 3
    fixture.do(state_machine.DeleteShareState("t", OTHER))  # 5
    assert fixture.machine.states.lowest_needed_offset() == 5


def test_idle_state_gets_one_snapshot_after_interval() -> None:
    fixture = ShareStateFixture(updates=9)
    assert fixture.machine.handle(100, ShardLoaded()).timers[0].deadline_ms == 1100  # type: ignore[union-attr]
    fixture.begin()
    fixture.write(PersisterStateBatch(10, 11, 1, FREE))
    fixture.now = 1099
    fixture.do(TimerExpired(("cold",)))
    assert len(fixture.log) == 2
    fixture.now = 1100
    fx = fixture.do(TimerExpired(("cold",)))
    assert fx.timers[0].deadline_ms == 2100
    assert (fixture.last.snapshot_epoch, fixture.last.create_timestamp, fixture.last.write_timestamp) == (1, 100, 1100)
    assert [b.first_offset for b in fixture.last.state_batches] == [10]
    fixture.now = 9000
    fixture.do(TimerExpired(("cold",)))
    assert len(fixture.log) == 3, "all have one"


def test_decode_skips_unknown_records_and_raises_on_invalid_ones() -> None:
    assert records.decode(b"\x00\x09key", b"value") is None
    with pytest.raises(WireError):
        records.decode(None, b"")
    with pytest.raises(WireError):
        records.decode(
            records.encode(records.ShareRecord(share_state_records.ShareSnapshotKey("g", TOPIC, 0), None))[0], b"\x00"
        )


def test_write_over_maximum_stored_batches_returns_invalid_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.share_state.state_machine.MAX_STORED_SHARE_BATCHES", 5)
    fixture = ShareStateFixture(updates=9)
    fixture.begin()
    every = [PersisterStateBatch(at, at, 1, FREE) for at in range(10, 30, 2)]
    assert fixture.write(*every[:4]) is True
    assert code(fixture.write(*every[4:6])) is ErrorCode.INVALID_REQUEST
    assert fixture.write(every[4]) is True
    assert code(fixture.write(every[5])) is ErrorCode.INVALID_REQUEST


def test_decode_share_record_no_coordinator_writes_raises_wire_error() -> None:
    update = records.encode(
        records.ShareRecord(share_state_records.ShareUpdateKey("g", TOPIC, 0), share_state_records.ShareUpdateValue())
    )
    with pytest.raises(WireError):
        records.decode(update[0], None)
    for epoch in (-2, records.MAX_EPOCH + 1, 2**31 - 1):
        raw = records.encode(
            records.ShareRecord(
                share_state_records.ShareSnapshotKey("g", TOPIC, 0),
                share_state_records.ShareSnapshotValue(snapshot_epoch=epoch),
            )
        )
        with pytest.raises(WireError):
            records.decode(*raw)
