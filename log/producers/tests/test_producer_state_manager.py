"""Producer state: sequence rules, snapshots, expiration, memory of many producers.

Sources: ``ProducerAppendInfo.java``, ``ProducerStateManager.java``, ``ProducerStateEntry.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from crc32c import crc32c

from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.producers.producer_table import BatchMetadata, ProducerStateEntry, ProducerTable
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT, BatchHeader
from ottla.wire.record_batch.control_record import ControlRecordType

TOP = 2**31 - 1


def header(pid: int, epoch: int, sequence: int, count: int = 1, time_ms: int = 0, *, txn: bool = False) -> BatchHeader:
    attributes = TRANSACTIONAL_BIT if txn else 0
    return BatchHeader(0, 49, 0, 2, 0, attributes, count - 1, time_ms, time_ms, pid, epoch, sequence, count)


def known(*batches: tuple[int, int, int]) -> ProducerStateManager:
    """Return the state after producer 1 wrote these batches of (epoch, sequence, count), from offset 100 on."""
    states, offset = ProducerStateManager(), 100
    for epoch, sequence, count in batches:
        states.update(header(1, epoch, sequence, count, offset), offset)
        offset += count
    return states


FENCED, GAP = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
SIX = tuple((3, sequence, 10) for sequence in range(0, 60, 10))
# (name, batches written, next batch: epoch, sequence, count; None: accepted, an offset: duplicate, else the error)
CHECKS: list[tuple[str, tuple[tuple[int, int, int], ...], tuple[int, int, int], ErrorCode | int | None]] = [
    ("unknown producers begin anywhere", (), (0, 77, 1), None),
    ("the next", ((3, 0, 10),), (3, 10, 1), None),
    ("one too far", ((3, 0, 10),), (3, 11, 1), GAP),
    ("one too early", ((3, 0, 10),), (3, 9, 1), GAP),
    ("the same again", ((3, 0, 10),), (3, 0, 10), 100),
    ("the same, longer", ((3, 0, 10),), (3, 0, 11), GAP),
    ("the same, shorter", ((3, 0, 10),), (3, 0, 9), GAP),
    ("the end of the same", ((3, 0, 10),), (3, 1, 9), GAP),
    ("the fifth before again", SIX, (3, 10, 10), 110),
    ("the newest of six again", SIX, (3, 50, 10), 150),
    ("the sixth before is forgotten", SIX, (3, 0, 10), GAP),
    ("an older epoch", ((3, 0, 10),), (2, 10, 1), FENCED),
    ("an older epoch, the same sequences", ((3, 0, 10),), (2, 0, 10), FENCED),
    ("a newer epoch begins at 0", ((3, 0, 10),), (4, 0, 1), None),
    ("a newer epoch begins elsewhere", ((3, 0, 10),), (4, 10, 1), GAP),
    ("batches of an older epoch are forgotten", ((3, 0, 10), (4, 0, 5)), (4, 0, 10), GAP),
    ("batches of this epoch are kept", ((3, 0, 10), (4, 0, 5)), (4, 0, 5), 110),
    ("after the largest comes 0", ((3, TOP - 1, 2),), (3, 0, 1), None),
    ("after the largest does not come 1", ((3, TOP - 1, 2),), (3, 1, 1), GAP),
    ("around the largest, the next", ((3, TOP, 3),), (3, 2, 1), None),
    ("around the largest, again", ((3, TOP, 3),), (3, TOP, 3), 100),
]


@pytest.mark.parametrize(("case", "written", "then", "outcome"), CHECKS, ids=[row[0] for row in CHECKS])
def test_check_batch_returns_duplicate_or_error_by_epoch_and_sequence(
    case: str,
    written: tuple[tuple[int, int, int], ...],
    then: tuple[int, int, int],
    outcome: ErrorCode | int | None,
) -> None:
    states = known(*written)
    if isinstance(outcome, ErrorCode):
        with pytest.raises(ProtocolError) as caught:
            states.check_batch(header(1, *then))
        assert caught.value.code is outcome
        return
    found = states.check_batch(header(1, *then))
    if outcome is None:
        assert found is None
    else:
        assert found is not None
        assert (found.first_offset, found.last_offset, found.timestamp_ms) == (outcome, outcome + then[2] - 1, outcome)


def test_check_batch_after_marker_alone_expects_sequence_0() -> None:
    states = ProducerStateManager()
    states.end_transaction(header(1, 3, -1), 5, ControlRecordType.COMMIT, 0)
    assert states.producers[1] == ProducerStateEntry(3, (), 0, 0, -1)
    assert states.check_batch(header(1, 3, 0)) is None
    with pytest.raises(ProtocolError):
        states.check_batch(header(1, 3, 1))


def test_end_transaction_with_new_epoch_clears_batches() -> None:
    for epoch, left in ((3, 2), (4, 0)):
        states = known((3, 0, 10), (3, 10, 10))
        states.end_transaction(header(1, epoch, -1, time_ms=9), 120, ControlRecordType.COMMIT, 7)
        producer = states.producers[1]
        assert (producer.epoch, len(producer.batches), producer.coordinator_epoch) == (epoch, left, 7)
        assert producer.timestamp_ms == 9


class ProducerStateModel:
    """Reference implementation with plain dictionaries."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[int, list[BatchMetadata], int, int]] = {}
        self.open: dict[int, int] = {}
        self.ended: list[tuple[int, int]] = []

    def update(self, h: BatchHeader, offset: int) -> None:
        epoch, batches, coordinator, _ = self.known.get(h.producer_id, (h.producer_epoch, [], -1, 0))
        if epoch != h.producer_epoch:
            batches = []
        batch = BatchMetadata(h.last_sequence, offset + h.last_offset_delta, h.last_offset_delta, h.max_timestamp)
        self.known[h.producer_id] = (h.producer_epoch, [*batches, batch][-5:], coordinator, h.max_timestamp)
        if h.is_transactional:
            self.open.setdefault(h.producer_id, offset)

    def end(self, h: BatchHeader, offset: int, coordinator: int) -> int | None:
        epoch, batches, _, _ = self.known.get(h.producer_id, (h.producer_epoch, [], -1, 0))
        if batches and epoch == h.producer_epoch:
            batches = [*batches[:-1], batches[-1]._replace(timestamp_ms=h.max_timestamp)]
        self.known[h.producer_id] = (
            *(h.producer_epoch, batches if epoch == h.producer_epoch else []),
            *(coordinator, h.max_timestamp),
        )
        first = self.open.pop(h.producer_id, None)
        if first is None:
            return None
        self.ended.append((first, offset))
        return min(self.open.values(), default=offset + 1)

    def unstable(self, high_watermark: int) -> int | None:
        return min([*self.open.values(), *(f for f, last in self.ended if last >= high_watermark)], default=None)


@pytest.mark.parametrize("seed", range(8))
def test_producer_state_random_operations_equal_model(seed: int) -> None:
    rng = random.Random(seed)
    states, model, offset, high = ProducerStateManager(), ProducerStateModel(), 0, 0
    for turn in range(1500):
        pid, epoch = rng.randrange(12) * 1000, rng.choice((0, 0, 0, 0, 1))
        count, sequence, time_ms = rng.randrange(1, 5), rng.choice((0, 7, TOP - 1)), rng.randrange(-(2**62), 2**62)
        h = header(pid, epoch, sequence, count, time_ms, txn=rng.random() < 0.5)
        if rng.random() < 0.7:
            states.update(h, offset)
            model.update(h, offset)
        else:
            kind = rng.choice((ControlRecordType.ABORT, ControlRecordType.COMMIT))
            stable = model.end(h, offset, turn)
            aborted = states.end_transaction(h, offset, kind, turn)
            assert (aborted is not None) is (stable is not None and kind == ControlRecordType.ABORT)
            assert aborted is None or (aborted.producer_id, aborted.last_offset) == (pid, offset)
            assert aborted is None or aborted.last_stable_offset == stable
        offset += count
        if rng.random() < 0.2:
            high = rng.randrange(high, offset + 1)
        assert states.first_unstable_offset(high) == model.unstable(high)
        if rng.random() < 0.02:
            gone = rng.choice(list(model.known))
            if gone not in model.open:
                del model.known[gone], states.producers[gone]
        assert dict(states.producers) == {
            p: ProducerStateEntry(e, tuple(batches), t, c, model.open.get(p, -1))
            for p, (e, batches, c, t) in model.known.items()
        }
    again = ProducerStateManager.unpack(states.pack())
    assert again.pack() == states.pack()
    assert again.ongoing_txns == model.open
    assert dict(again.producers) == {
        p: ProducerStateEntry(
            e, tuple(batches[-1:]) and (batches[-1]._replace(timestamp_ms=t),), t, c, model.open.get(p, -1)
        )
        for p, (e, batches, c, t) in model.known.items()
    }


def test_producer_state_batch_beyond_offset_delta_range_is_forgotten() -> None:
    for gap, left in ((2**31 - 1, 2), (2**31, 1)):
        states = known((0, 0, 1))
        states.update(header(1, 0, 1), 100 + gap)
        assert [x.last_offset for x in states.producers[1].batches] == [100, 100 + gap][-left:]


def test_producer_table_set_and_delete_whole_entry() -> None:
    table = ProducerTable()
    batches = tuple(BatchMetadata(i * 10 + 9, i * 100 + 9, 9, 5) for i in range(5))
    for pid in (1, 2, 3):
        table[pid] = ProducerStateEntry(pid, batches[: pid + 2], 5, 6, 7)
    del table[1]
    assert dict(table) == {pid: ProducerStateEntry(pid, batches[: pid + 2], 5, 6, 7) for pid in (2, 3)}
    table[3] = ProducerStateEntry(9)
    assert table[3] == ProducerStateEntry(9)
    assert 1 not in table
    assert table.entry(1) is None
    with pytest.raises(KeyError):
        table[1]
    with pytest.raises(KeyError):
        del table[1]


EXPIRING = [
    ("silent for so long", 10, -1, True),
    ("silent for longer", 11, -1, True),
    ("not so long", 9, -1, False),
    ("with something open", 99, 0, False),
]


@pytest.mark.parametrize(("case", "silent_ms", "first", "gone"), EXPIRING, ids=[row[0] for row in EXPIRING])
def test_expire_removes_inactive_producers_without_transaction(
    case: str, silent_ms: int, first: int, gone: bool
) -> None:
    states = ProducerStateManager(ProducerTable())
    states.producers[5] = ProducerStateEntry(0, (BatchMetadata(0, 0, 0, 1000),), 1000, -1, first)
    states.expire(1000 + silent_ms, 10)
    assert 5 in states.producers, "active since the last expiration"
    states.expire(1000 + silent_ms, 10)
    assert (5 not in states.producers) is gone


def test_expire_job_pauses_and_removes_inactive_producers_during_appends() -> None:
    states = known()
    for pid in range(100):
        states.update(header(pid, 0, 0, time_ms=0 if pid % 3 else 1000), pid)
    for _ in states.producers.expire_job(1000, 10, 7):
        pass
    pauses = 0
    for _ in states.producers.expire_job(1000, 10, 7):
        states.update(header(1000 + pauses, 0, 0), 1000 + pauses)
        pauses += 1
    assert pauses == 100 // 7
    assert sorted(states.producers) == [*range(0, 100, 3), *range(1000, 1000 + pauses)]
    assert all(states.producers[pid].batches[-1].last_offset == pid for pid in states.producers)


SNAPSHOT = known((3, 0, 10)).pack()


def test_pack_writes_version_checksum_and_entries() -> None:
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 1, 3, 9, 109, 9, 100, -1, -1)
    assert struct.pack(">hI", 1, crc32c(body)) + body == SNAPSHOT


def test_pack_producer_with_marker_only_has_no_batch() -> None:
    """``ProducerStateManager.writeSnapshot``: no sequence, no offset, a delta of 0."""
    table = ProducerTable()
    table[7] = ProducerStateEntry(4, (), 55, 6, -1)
    noted = ProducerTable()
    noted.add_end_marker(7, 4, 6, 55)
    assert (
        bytes(table.snapshot_body) == bytes(noted.snapshot_body) == struct.pack(">qhiqiqiq", 7, 4, -1, -1, 0, 55, 6, -1)
    )
    assert noted[7] == ProducerStateEntry(4, (), 55, 6, -1)


def signed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


BAD = [
    b"",
    SNAPSHOT[:9],
    SNAPSHOT[:-1],
    SNAPSHOT + b"\x00",
    SNAPSHOT[:-1] + b"\x00",
    signed(SNAPSHOT[6:], 2),
    signed(struct.pack(">i", 2) + SNAPSHOT[10:]),
    signed(struct.pack(">i", 2) + SNAPSHOT[10:] * 2),
]


@pytest.mark.parametrize("raw", BAD)
def test_unpack_damaged_snapshot_raises_corrupt_file(raw: bytes) -> None:
    with pytest.raises(CorruptFile):
        ProducerStateManager.unpack(raw, "x")


def test_producer_table_of_100000_producers_takes_25_mib_at_most() -> None:
    tracemalloc.start()
    states = ProducerStateManager()
    for turn in range(5):
        for pid in range(100_000):
            states.producers.add_batch(10**6 + pid, 0, BatchMetadata(turn, turn * 100_000 + pid, 0, 10**12), -1)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size <= 25 << 20
    assert len(states.producers[10**6 + 77].batches) == 5


def test_first_unstable_offset_heap_stays_small_behind_open_transaction() -> None:
    states = ProducerStateManager()
    for pid in range(5):
        states.update(header(pid, 0, 0, txn=True), pid)
    for number in range(1000):
        states.update(header(7, 0, number, txn=True), 10 + 2 * number)
        states.end_transaction(header(7, 0, -1), 11 + 2 * number, ControlRecordType.COMMIT, 0)
        assert states.first_unstable_offset(12 + 2 * number) == 0
        assert len(states._ongoing_heap) <= 65
    for pid in range(5):
        assert states.first_unstable_offset(3000 + pid) == pid
        states.end_transaction(header(pid, 0, -1), 3000 + pid, ControlRecordType.COMMIT, 0)
    assert states.first_unstable_offset(4000) is None


class CountingTransactions(dict[int, int]):
    """Open transactions that count lookups."""

    lookups = 0

    def get(self, pid: int, default: int = -1) -> int:  # type: ignore[override]
        self.lookups += 1
        return super().get(pid, default)


@pytest.mark.parametrize("kind", [ControlRecordType.ABORT, ControlRecordType.COMMIT])
def test_end_transaction_takes_constant_lookups_with_many_open(kind: int) -> None:
    states = ProducerStateManager()
    for pid in range(1000):
        states.update(header(pid, 0, 0, txn=True), pid)
    states.ongoing_txns = counting = CountingTransactions(states.ongoing_txns)
    ended = [states.end_transaction(header(pid, 0, -1), 1000 + pid, kind, 0) for pid in range(1000)]
    assert counting.lookups <= 6 * 1000
    if kind == ControlRecordType.ABORT:
        stable = [entry.last_stable_offset for entry in ended if entry is not None]
        assert stable == [*range(1, 1000), 2000], "each was the oldest open transaction"
