"""Creation of a log: allowed directories, and existing records that stay unchanged."""

from __future__ import annotations

import pytest

from ottla.log.directory.directory_listing import list_foreign_entries, list_suffixed_dirs
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.log.directory.tests.test_log_directory import OTHER_ID, directory_with_logs, open_directory, reopen_directory
from ottla.log.file_names import DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX
from ottla.log.tests.log_fixtures import NOW, SMALL, TOPIC_ID, append_batches, memory_disk, record_offsets


def test_create_partition_over_existing_records_raises_file_exists_error() -> None:
    memory = memory_disk()
    directory = directory_with_logs(memory, 1)
    there = record_offsets(directory.logs["t", 0])
    with pytest.raises(FileExistsError):
        directory.create_partition_files("t", 0, OTHER_ID, SMALL, NOW)
    log = reopen_directory(memory)[1][0]
    assert log.topic_id == TOPIC_ID
    assert record_offsets(log) == there != []


def test_create_partition_after_unfinished_creation_replaces_its_files() -> None:
    directory = open_directory(memory_disk().session())
    directory.create_partition_files("t", 0, TOPIC_ID, SMALL, NOW).close_files()
    log = directory.create_partition("t", 0, OTHER_ID, SMALL, NOW)
    append_batches(log, 3)
    assert log.topic_id == OTHER_ID
    assert log.log_end_offset > 0


def test_create_or_delete_partition_of_metadata_log_raises_assertion_error() -> None:
    directory = open_directory(memory_disk().session())
    for number in (0, 1):
        with pytest.raises(AssertionError):
            directory.create_partition_files(METADATA_TOPIC, number, TOPIC_ID, SMALL, NOW)
        with pytest.raises(AssertionError):
            directory.rename_for_deletion(METADATA_TOPIC, number, "x")


def test_topic_named_like_a_deleted_directory_is_an_ordinary_topic() -> None:
    names = [f"t-0.{32 * 'a'}-{word}" for word in ("delete", "future", "stray")] + ["-delete", "t-0", "0"]
    directory = open_directory(memory_disk().session())
    for name in names:
        directory.create_partition(name, 0, TOPIC_ID, SMALL, NOW)
    assert set(directory.partition_dirs()) == {(name, 0) for name in names}
    for suffix in (DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX):
        assert not list_suffixed_dirs(directory.disk, directory.path, suffix)
    assert not list_foreign_entries(directory.disk, directory.path)
