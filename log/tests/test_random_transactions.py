"""Random transactions of several producers compared with a model, with truncations, restarts, crashes and deletions.

Sources: ``ProducerStateManager.java``, ``UnifiedLog.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest

from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.transaction_verification import TxnAppendContext
from ottla.log.tests.log_fixtures import NOW, make_batch, memory_disk, new_log, reopen_in_new_session
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, build_end_transaction_batch

TINY = LogConfig(segment_bytes=600, index_interval_bytes=100)
PIDS = (1, 2, 3)


class WrittenBatch(NamedTuple):
    """Written batch: producer and type (``data``, ``plain``, or the type of a marker)."""

    offset: int
    size: int
    pid: int
    epoch: int
    kind: str | int


class TransactionModel:
    """Model that keeps every batch."""

    def __init__(self) -> None:
        self.batches: list[WrittenBatch] = []
        self.high_watermark = 0
        self.start = 0

    @property
    def end(self) -> int:
        return self.batches[-1].offset + self.batches[-1].size if self.batches else self.start

    def epoch(self, pid: int) -> int:
        return next((x.epoch for x in reversed(self.batches) if x.pid == pid), 0)

    def transactions(self) -> list[tuple[int, int, int | None, int]]:
        """Return (producer, first offset, offset of its marker or None, type of the marker)."""
        out, first_offsets = [], {}
        for written in self.batches:
            if written.kind == "data":
                first_offsets.setdefault(written.pid, written.offset)
            elif isinstance(written.kind, int) and written.pid in first_offsets:
                out.append((written.pid, first_offsets.pop(written.pid), written.offset, written.kind))
        return [*out, *((pid, first, None, -1) for pid, first in first_offsets.items())]

    def is_open(self, pid: int) -> bool:
        return any(producer == pid and last is None for producer, _, last, _ in self.transactions())

    def last_stable_offset(self) -> int:
        unstable = (f for _, f, last, _ in self.transactions() if last is None or last >= self.high_watermark)
        return max(min([*unstable, self.high_watermark]), self.start)

    def transaction_outcomes(self) -> list[tuple[WrittenBatch, bool]]:
        """Return each remaining batch of an ended transaction, and whether it was aborted."""
        ended = [(pid, first, last, kind) for pid, first, last, kind in self.transactions() if last is not None]
        return [
            (written, kind == ControlRecordType.ABORT)
            for written in self.batches
            if written.kind == "data" and written.offset >= self.start
            for pid, first, last, kind in ended
            if pid == written.pid and first <= written.offset < last
        ]


class TransactionHistory:
    """A log and its model, with the operations on both."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.memory = memory_disk(seed)
        self.log: PartitionLog = new_log(self.memory.session(), TINY)
        self.model = TransactionModel()

    def step(self) -> None:
        steps = [self.write] * 8 + [self.end] * 5 + [self.plain] * 2 + [self.commit] * 5
        self.rng.choice([*steps, self.refused, self.truncate, self.stop, self.crash, self.delete])()

    def _note(self, size: int, pid: int, epoch: int, kind: str | int) -> None:
        self.model.batches.append(WrittenBatch(self.log.log_end_offset - size, size, pid, epoch, kind))

    def _next_sequence(self, pid: int, epoch: int) -> int:
        """Return the next expected sequence; the log may have forgotten a producer header records are deleted."""
        known = self.log.producers.producers.get(pid)
        return 0 if known is None or known.epoch != epoch else known.last_sequence + 1

    def write(self) -> None:
        pid, size = self.rng.choice(PIDS), self.rng.randint(1, 3)
        epoch = self.model.epoch(pid)
        sequence = self._next_sequence(pid, epoch)
        guard = self.log.producers.maybe_start_verification(pid, epoch, sequence, NOW, bumps=False)
        assert (guard is None) is self.model.is_open(pid)
        header = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
        data = make_batch(0, size, attributes=TRANSACTIONAL_BIT, **header)
        self.log.append_as_leader(data, 0, NOW, txn=TxnAppendContext(guard))
        self._note(size, pid, epoch, "data")

    def end(self) -> None:
        pid, kind = self.rng.choice(PIDS), self.rng.choice([ControlRecordType.ABORT, ControlRecordType.COMMIT])
        bumps = self.rng.random() < 0.5
        epoch = self.model.epoch(pid) + bumps
        data = bytearray(build_end_transaction_batch(EndTransactionMarker(kind, 0), pid, epoch, NOW))
        self.log.append_as_leader(
            data, 0, NOW, AppendOrigin.COORDINATOR, txn=TxnAppendContext(transaction_version=2 if bumps else 1)
        )
        self._note(1, pid, epoch, int(kind))

    def plain(self) -> None:
        self.log.append_as_leader(make_batch(0, 2), 0, NOW)
        self._note(2, -1, -1, "plain")

    def refused(self) -> None:
        """Try an append that must fail: unverified, outdated, or outside of the open transaction."""
        pid = self.rng.choice(PIDS)
        epoch = self.model.epoch(pid)
        header = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": self._next_sequence(pid, epoch)}
        is_open = self.model.is_open(pid)
        data = make_batch(0, 1, attributes=0 if is_open else TRANSACTIONAL_BIT, **header)
        with pytest.raises(ProtocolError) as raised:
            self.log.append_as_leader(data, 0, NOW)
        assert raised.value.code is ErrorCode.INVALID_TXN_STATE
        if is_open:
            late = bytearray(build_end_transaction_batch(EndTransactionMarker(0, 0), pid, epoch, NOW))
            with pytest.raises(ProtocolError) as raised:
                self.log.append_as_leader(
                    late, 0, NOW, AppendOrigin.COORDINATOR, txn=TxnAppendContext(transaction_version=2)
                )
            assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH

    def commit(self) -> None:
        self.model.high_watermark = self.rng.randint(self.model.high_watermark, self.model.end)
        self.log.set_high_watermark(self.model.high_watermark)

    def truncate(self) -> None:
        kept = [x for x in self.model.batches if x.offset + x.size <= self.model.high_watermark]
        others = self.model.batches[len(kept) :]
        batches = kept + others[: self.rng.randint(0, len(others))]
        end = batches[-1].offset + batches[-1].size if batches else self.model.start
        if end < self.model.high_watermark:
            return  # the high watermark is within a committed batch
        self.model.batches = batches
        self.log.truncate_to(end, NOW)
        self._all_committed()

    def stop(self) -> None:
        point = self.log.log_end_offset
        self.log.close()
        self.log = reopen_in_new_session(self.memory, TINY, clean=True, point=point, start=self.model.start)
        self._reopened()

    def crash(self) -> None:
        self.log.set_offline()
        point = self.rng.choice([0, *self.log.segments.base_offsets])
        self.log = reopen_in_new_session(self.memory, TINY, point=point, start=self.model.start)
        self._reopened()

    def _reopened(self) -> None:
        assert self.log.log_end_offset == self.model.end
        self._all_committed()

    def _all_committed(self) -> None:
        """A snapshot does not contain the markers above the high watermark: replayed batches count as committed, as
        in Kafka (``ProducerStateManager.truncateAndReload``).
        """
        self.model.high_watermark = self.model.end
        self.log.set_high_watermark(self.model.end)

    def delete(self) -> None:
        """Delete records below the last stable offset, with whole segments."""
        offset = self.rng.randint(self.model.start, self.model.last_stable_offset())
        if self.log.maybe_increment_log_start_offset(offset):
            self.model.start = offset

    def check(self) -> None:
        log, model = self.log, self.model
        assert (log.log_end_offset, log.high_watermark) == (model.end, model.high_watermark)
        assert log.last_stable_offset == model.last_stable_offset()
        assert log.producers.ongoing_txns == {p: first for p, first, last, _ in model.transactions() if last is None}
        low, high = sorted(self.rng.randint(model.start, model.end) for _ in range(2))
        found = log.segments.collect_aborted_txns(low, high)
        assert len(found) == len(set(found))
        for written, is_aborted in model.transaction_outcomes():
            if low <= written.offset < high:
                its = [x for x in found if x.producer_id == written.pid]
                skipped = any(x.first_offset <= written.offset <= x.last_offset for x in its)
                assert skipped is is_aborted, f"{written} in {low} to {high}"


@pytest.mark.parametrize("seed", range(12))
def test_log_random_transactions_equal_model(seed: int) -> None:
    history = TransactionHistory(seed)
    for _ in range(150):
        history.step()
        history.check()
    assert len(history.log.segments) > 3
