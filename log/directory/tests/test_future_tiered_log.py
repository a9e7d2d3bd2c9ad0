"""Future log of a log whose first records are in the remote store."""

from __future__ import annotations

from dataclasses import replace

from ottla.log.directory.log_directory import LogDirectory
from ottla.log.directory.tests.test_future_log import FutureLogFixture
from ottla.log.log_config import TieringConfig
from ottla.log.tests.log_fixtures import NOW, SMALL, append_batches, make_batch

TIERED = replace(SMALL, retention_ms=-1, tiering=TieringConfig(True, True, -1, -1))


def tiered_fixture() -> FutureLogFixture:
    """Return logs of which the current one has its first 60 offsets, from 4 on, in the remote store."""
    fixture = FutureLogFixture(TIERED)
    current = fixture.current
    for epoch in (1, 1, 3, 3, 3):
        first = current.log_end_offset
        batch = make_batch(first, 12, producer_id=7, producer_epoch=0, base_sequence=first)
        current.append_as_leader(batch, epoch, NOW)
        current.set_high_watermark(current.log_end_offset)
    current.roll(NOW)
    append_batches(current, 10, epoch=5)
    current.raise_highest_remote_offset(59)
    current.maybe_increment_log_start_offset(4)
    current.maybe_increment_local_log_start_offset(60)
    current.delete_segments_below_start(NOW)
    assert current.segments.base_offsets[0] == 60
    return fixture


def test_future_log_of_a_tiered_log_starts_at_its_local_log_start() -> None:
    fixture = tiered_fixture()
    fixture.copy(pieces=2)
    future, current = fixture.future, fixture.current
    assert (future.log_start_offset, future.local_log_start_offset) == (4, 60)
    assert future.highest_remote_offset == 59
    assert future.producers.producers.entry(7) is not None
    fixture.copy()
    assert [bytes(raw) for _, raw in future.segments.batches(60)] == [
        bytes(raw) for _, raw in current.segments.batches(60)
    ]
    assert future.epochs.entries == current.epochs.entries == [(1, 4), (3, 24), (5, 60)]
    current.raise_highest_remote_offset(80)
    fixture.swap()
    again = LogDirectory(fixture.memory.session(), "/b")
    again.load_checkpoints()
    log = again.open_partition("t", 0, TIERED, NOW)
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (4, 60, 90)
    assert log.producers.producers.entry(7) is not None
    assert log.epochs.entries == current.epochs.entries
    assert future.highest_remote_offset == 80


def test_future_log_behind_the_local_log_start_is_restarted_there() -> None:
    fixture = tiered_fixture()
    fixture.copy(pieces=2)
    assert fixture.future.log_end_offset < 90
    fixture.current.raise_highest_remote_offset(89)
    fixture.current.roll(NOW)
    fixture.current.maybe_increment_local_log_start_offset(90)
    fixture.current.delete_segments_below_start(NOW)
    fixture.copy()
    assert (fixture.future.log_start_offset, fixture.future.local_log_start_offset) == (4, 90)
    assert fixture.future.segments.base_offsets == [90]
    assert fixture.future.epochs.entries == fixture.current.epochs.entries
