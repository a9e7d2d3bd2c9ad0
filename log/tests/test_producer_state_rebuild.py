"""Producer state below a truncation offset, computed in steps before the truncation."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest

from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.tests.log_fixtures import (
    NOW,
    append_committed,
    make_batch,
    make_marker,
    make_producer_batch,
    make_transactional_batch,
    memory_disk,
    new_log,
    reopen_in_new_session,
)


def random_history(seed: int) -> PartitionLog:
    """Return a log of producers with and without transactions, some of them open, over several segments."""
    rng = random.Random(seed)
    log = new_log(memory_disk().session())
    sequences, open_ids = dict.fromkeys(range(1, 6), 0), set[int]()
    for _ in range(60):
        pid = rng.randrange(0, 6)
        if rng.random() < 0.1:
            log.roll(NOW)
        if pid == 0:
            append_committed(log, make_batch(0, rng.randrange(1, 4)))
        elif pid in open_ids and rng.random() < 0.4:
            append_committed(log, make_marker(pid, rng.randrange(2)))
            open_ids.discard(pid)
        else:
            append_committed(
                log,
                make_transactional_batch(pid, sequences[pid]) if pid > 2 else make_producer_batch(pid, sequences[pid]),
            )
            sequences[pid] += 1
            if pid > 2:
                open_ids.add(pid)
    log.set_high_watermark(log.log_end_offset)
    return log


def run_and_count_steps(
    steps: Generator[None, None, ProducerStateManager | None],
) -> tuple[int, ProducerStateManager | None]:
    """Return the number of steps and the result."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return count, end.value
        count += 1


def packed_state(states: ProducerStateManager | None) -> Any:
    assert states is not None
    return states.pack(), states.ongoing_txns


@pytest.mark.parametrize("seed", range(6))
def test_producer_state_below_job_equals_state_after_truncation(seed: int) -> None:
    for offset in range(0, random_history(seed).log_end_offset, 3):
        log, other = random_history(seed), random_history(seed)
        _, steps = run_and_count_steps(log.producer_state_below_job(offset))
        assert packed_state(log.producers) == packed_state(other.producers), "state is unchanged before completion"
        log.truncate_to(offset, NOW, steps)
        other.truncate_to(offset, NOW)
        assert packed_state(log.producers) == packed_state(other.producers)
        assert log.last_stable_offset == other.last_stable_offset
        assert [x.aborted_txns for x in log.segments] == [x.aborted_txns for x in other.segments]


def of_one_segment(batches: int) -> PartitionLog:
    log = new_log(memory_disk().session(), LogConfig())
    for sequence in range(batches):
        append_committed(log, make_producer_batch(1, sequence))
    return log


def test_producer_state_below_job_yields_every_few_batches() -> None:
    log = of_one_segment(200)
    steps, _ = run_and_count_steps(log.producer_state_below_job(log.log_end_offset - 1))
    assert steps >= 10


@pytest.mark.parametrize("change", ["append", "roll", "start", "cut"])
def test_producer_state_below_job_of_changed_log_returns_none(change: str) -> None:
    log = of_one_segment(40)
    steps = log.producer_state_below_job(log.log_end_offset)
    next(steps)
    match change:
        case "append":
            append_committed(log, make_producer_batch(1, 40))
        case "roll":
            log.roll(NOW)
        case "start":
            log.maybe_increment_log_start_offset(3)
        case _:
            log.truncate_to(30, NOW)
    assert run_and_count_steps(steps)[1] is None


@pytest.mark.parametrize("again", [False, True])
def test_truncate_below_marker_of_expired_producer_reopens_transaction(again: bool) -> None:
    """Otherwise its records would count as committed, also after a restart with a snapshot without the producer."""
    memory = memory_disk()
    log = new_log(memory.session(), LogConfig())
    append_committed(log, make_batch(0, 1))
    append_committed(log, make_transactional_batch(7, 0))
    end = log.log_end_offset
    append_committed(log, make_marker(7, 0))
    for _ in range(2):
        log.producers.expire(NOW * 10, 1)
    assert not log.producers.producers
    if again:
        log.close()
        log = reopen_in_new_session(memory, LogConfig(), clean=True, point=log.log_end_offset)
    log.truncate_to(end, NOW)
    log.set_high_watermark(log.log_end_offset)
    assert (log.producers.ongoing_txns, log.last_stable_offset) == ({7: 1}, 1)
