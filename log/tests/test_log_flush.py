"""Recovery point and unflushed records of a log, and the names of files that a flush syncs."""

from __future__ import annotations

from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import NOW, append_batches, memory_disk, new_log


def test_truncate_inside_a_batch_lowers_recovery_point_to_log_end() -> None:
    log = new_log(memory_disk().session(), LogConfig())
    append_batches(log, 10)
    log.flush()
    assert log.recovery_point == 30
    assert log.truncate_to(13, NOW) == 12
    assert log.recovery_point == 12
    append_batches(log, 1)
    assert log.unflushed_records == 3


def test_flush_after_truncation_syncs_directory() -> None:
    log = new_log(memory_disk().session())
    append_batches(log, 30)
    log.flush()
    log.truncate_to(30, NOW)
    assert log.recovery_point == log.log_end_offset
    assert log.segments.directory_changes > log.flush_state.synced_directory_changes
    log.flush()
    assert log.segments.directory_changes == log.flush_state.synced_directory_changes
