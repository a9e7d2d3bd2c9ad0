"""Equality of producer state and log on every replica: otherwise a retry is written twice.

Random histories of three replicas: a leader appends batches and their retries, followers fetch some of them at a time,
leadership changes, diverged logs are truncated, and replicas restart after a clean shutdown or a crash.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ottla.broker.replication.fetcher.fetch_state import compute_truncation
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state_manager import BATCHES_TO_RETAIN, BatchMetadata
from ottla.log.tests.log_fixtures import NOW, make_batch, memory_disk, new_log, reopen_in_new_session
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.batch_header import BatchHeader

SETTINGS = LogConfig(segment_bytes=1500, index_interval_bytes=200)
PRODUCERS = (1, 2, 3)
STEPS = 300


class SimulatedReplica:
    """Replica with a log on a disk of its own."""

    def __init__(self, seed: int) -> None:
        self.memory = memory_disk(seed)
        self.log = new_log(self.memory.session(), SETTINGS)
        self.forgot_from = 0
        """Below this only each producer's last batch must be known: a snapshot says no more."""

    def restart(self, *, clean: bool) -> None:
        """Stop or crash, and start again."""
        if clean:
            self.log.close()
        self.log.close_files()
        point = 0 if not clean else self.log.log_end_offset
        self.log = reopen_in_new_session(self.memory, SETTINGS, clean=clean, point=point)
        self.forgot_from = self.log.log_end_offset

    def headers(self) -> list[BatchHeader]:
        """Return the headers of all batches in the log."""
        return [header for header, _ in self.log.segments.batches()]

    def check(self) -> None:
        """Compare the producer state with one that is rebuilt from the log's batches in a dictionary."""
        reported: dict[int, tuple[int, list[BatchMetadata]]] = {}
        for x in self.headers():
            epoch, batches = reported.get(x.producer_id, (-1, []))
            batches = batches if epoch == x.producer_epoch else []
            info = BatchMetadata(x.last_sequence, x.last_offset, x.last_offset_delta, x.max_timestamp)
            reported[x.producer_id] = x.producer_epoch, [*batches, info][-BATCHES_TO_RETAIN:]
        known = self.log.producers.producers
        assert set(known) == set(reported)
        for pid, (epoch, batches) in reported.items():
            has = known[pid]
            assert (has.epoch, has.batches[-1]) == (epoch, batches[-1])
            assert has.batches == tuple(batches[-len(has.batches) :])
            assert len([x for x in batches[:-1] if x.last_offset >= self.forgot_from]) < len(has.batches)


def a_batch_of(pid: int, epoch: int, first: int, count: int) -> bytearray:
    """Return a producer's batch as it is sent."""
    return make_batch(first, count, producer_id=pid, producer_epoch=epoch, base_sequence=first)


class ReplicatedHistory:
    """Random history of replicated producers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.replicas = [SimulatedReplica(seed * 3 + number) for number in range(3)]
        self.leader, self.epoch = 0, 0
        self.met: Counter[str] = Counter()
        self.log.assign_epoch_start_offset(self.epoch)

    def step(self) -> None:
        """Execute one event, then check every replica."""
        value = self.rng.choices(
            [self.write, self.send_again, self.fetch, self.elect, self.restart], [8, 2, 8, 1, 0.5]
        )[0]
        value()
        self.met[value.__name__] += 1
        for replica in self.replicas:
            replica.check()

    @property
    def log(self) -> PartitionLog:
        """Return the leader's log."""
        return self.replicas[self.leader].log

    def write(self) -> None:
        """Append a producer's next batch; sometimes the first of a new epoch."""
        pid = self.rng.choice(PRODUCERS)
        known = self.log.producers.producers.get(pid)
        epoch, first = (0, 0) if known is None else (known.epoch, known.last_sequence + 1)
        if self.rng.random() < 0.05:
            epoch, first = epoch + 1, 0
        done = self.log.append_as_leader(a_batch_of(pid, epoch, first, self.rng.randint(1, 3)), self.epoch, NOW)
        assert not done.duplicate

    def send_again(self) -> None:
        """Append a known batch again: one of the last is recognised as duplicate, an older one is refused."""
        pid = self.rng.choice(PRODUCERS)
        known = self.log.producers.producers.get(pid)
        if known is None:
            return
        sent = [
            x for x in self.replicas[self.leader].headers() if (x.producer_id, x.producer_epoch) == (pid, known.epoch)
        ]
        back = self.rng.randint(1, min(len(sent), BATCHES_TO_RETAIN + 1))
        old, end = sent[-back], self.log.log_end_offset
        batch = a_batch_of(pid, known.epoch, old.base_sequence, old.records_count)
        if back <= len(known.batches):
            done = self.log.append_as_leader(batch, self.epoch, NOW)
            assert (done.duplicate, done.first_offset) == (True, old.base_offset)
        else:
            with pytest.raises(ProtocolError) as refused:
                self.log.append_as_leader(batch, self.epoch, NOW)
            assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert self.log.log_end_offset == end

    def fetch(self) -> None:
        """Truncate a diverged follower, or append some of the leader's batches to it."""
        number = self.rng.choice([n for n in range(3) if n != self.leader])
        replica, log = self.replicas[number], self.replicas[number].log
        last = log.epochs.latest_epoch()
        epoch, end = self.log.epochs.end_offset_for(last, self.log.log_end_offset)
        if log.log_end_offset and (epoch != last or end < log.log_end_offset):
            own = log.epochs.end_offset_for(epoch, log.log_end_offset)
            log.truncate_to(compute_truncation(epoch, end, own, log.log_end_offset).offset, NOW)
            replica.forgot_from = log.log_end_offset
            self.met["cut"] += 1
            return
        raw = b"".join(
            bytes(x) for _, x in list(self.log.segments.batches(log.log_end_offset))[: self.rng.randint(1, 6)]
        )
        if raw and log.log_end_offset < self.log.log_end_offset:
            log.append_as_follower(raw, NOW)

    def elect(self) -> None:
        """Elect any replica, as in an unclean election."""
        self.leader, self.epoch = self.rng.randrange(3), self.epoch + 1
        self.log.assign_epoch_start_offset(self.epoch)

    def restart(self) -> None:
        """Restart a replica after a clean shutdown or a crash that loses no record."""
        self.rng.choice(self.replicas).restart(clean=self.rng.random() < 0.5)
        self.log.assign_epoch_start_offset(self.epoch)


@pytest.mark.parametrize("seed", range(12))
def test_producer_state_of_every_replica_equals_its_log(seed: int) -> None:
    history = ReplicatedHistory(seed)
    for _ in range(STEPS):
        history.step()
    assert min(history.met[x] for x in ("write", "send_again", "fetch", "elect", "restart", "cut")) > 0
