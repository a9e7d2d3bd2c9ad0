"""A new log: where it may be made, and where something lies that stays as it is."""

from __future__ import annotations

import pytest

from ottla.log.directory.directory_listing import list_foreign_entries, list_suffixed_dirs
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.log.directory.tests.test_log_directory import OTHER_ID, begun, opened_again, with_logs
from ottla.log.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from ottla.log.tests.log_fixtures import NOW, SMALL, TOPIC_ID, append_batches, memory_disk, record_offsets


def test_no_partition_is_made_where_records_lie() -> None:
    memory = memory_disk()
    directory = with_logs(memory, 1)
    there = record_offsets(directory.logs["t", 0])
    with pytest.raises(FileExistsError):
        directory.create_partition_files("t", 0, OTHER_ID, SMALL, NOW)
    log = opened_again(memory)[1][0]
    assert log.topic_id == TOPIC_ID
    assert record_offsets(log) == there != []


def test_what_a_creation_that_did_not_end_has_left_is_taken_over() -> None:
    directory = begun(memory_disk().session())
    directory.create_partition_files("t", 0, TOPIC_ID, SMALL, NOW).close_files()
    log = directory.create_partition("t", 0, OTHER_ID, SMALL, NOW)
    append_batches(log, 3)
    assert log.topic_id == OTHER_ID
    assert log.log_end_offset > 0


def test_the_metadata_log_is_never_taken_for_a_partition() -> None:
    directory = begun(memory_disk().session())
    for number in (0, 1):
        with pytest.raises(AssertionError):
            directory.create_partition_files(METADATA_TOPIC, number, TOPIC_ID, SMALL, NOW)
        with pytest.raises(AssertionError):
            directory.rename_for_deletion(METADATA_TOPIC, number, "x")


def test_topics_named_as_a_directory_on_its_way_out_are_as_good_as_any_other() -> None:
    names = [f"t-0.{32 * 'a'}-{word}" for word in ("delete", "future", "stray")] + ["-delete", "t-0", "0"]
    directory = begun(memory_disk().session())
    for name in names:
        directory.create_partition(name, 0, TOPIC_ID, SMALL, NOW)
    assert set(directory.partition_dirs()) == {(name, 0) for name in names}
    for suffix in (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX):
        assert not list_suffixed_dirs(directory.disk, directory.path, suffix)
    assert not list_foreign_entries(directory.disk, directory.path)
