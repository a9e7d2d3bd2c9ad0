"""Bugs planted in a single node: in its log, its disk, its metadata and its handlers."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from ottla.broker.fetch_sessions import fetch_session_cache
from ottla.broker.fetch_sessions.fetch_session import CachedPartition
from ottla.broker.groups import records
from ottla.broker.handlers.admin import delete_records
from ottla.broker.metadata.producer_id_manager import ProducerIdManager
from ottla.broker.replication.log_maintenance import LogMaintenance
from ottla.controller.control import alter_configs, create_and_delete_topics, create_partitions
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.env.disk import FileSlice
from ottla.env.memory_disk import MemoryFile
from ottla.log.checkpoints import checkpoint_files
from ottla.log.cleaner import compaction
from ottla.log.directory import log_directory
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.log_append import LogAppendInfo
from ottla.log.log_flush import LogFlush
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery import log_loader
from ottla.log.segment.log_segment import LogSegment
from sim.tests.seeded_faults.seeding import patch


def acknowledge_without_writing() -> None:
    """Every fortieth batch is acknowledged and not written."""
    count = [0]

    def make(real: Any) -> Any:
        def append(self: PartitionLog, *rest: Any, **named: Any) -> Any:
            count[0] += 1
            if self.topic == "t" and count[0] % 40 == 0:
                return LogAppendInfo(self.log_end_offset, self.log_end_offset, -1)
            return real(self, *rest, **named)

        return append

    patch(PartitionLog, "append_as_leader", make)


def forget_producers() -> None:
    """Producer state is empty after a start."""
    log_loader.rebuild_producer_state = lambda *_, **__: ProducerStateManager()


def skip_the_duplicate_check() -> None:
    """A duplicate batch is appended again."""
    ProducerStateManager.check_batch = lambda *_: None  # type: ignore[method-assign]


def trust_files_after_crash() -> None:
    """Every stop counts as a clean one."""
    checkpoint_files.remove_clean_shutdown_file = lambda *_: 1


def skip_fsync() -> None:
    """A sync returns without an effect."""
    LogFlush.__call__ = lambda _: None  # type: ignore[method-assign]


def forget_names_of_a_roll_during_a_sync() -> None:
    """At the end of a sync, names created during the sync count as synced, too."""

    def make(real: Any) -> Any:
        def finish(self: PartitionLog, job: LogFlush) -> int:
            job.directory_change_count = self.segments.directory_changes
            return int(real(self, job))

        return finish

    patch(PartitionLog, "complete_flush", make)


def skip_truncation_in_recovery() -> None:
    """Damage at the end of a file is not truncated."""
    LogSegment.truncate = lambda *_: None  # type: ignore[method-assign]


def sync_only_the_newest_segment() -> None:
    """Records written to the segment before a roll are not synced."""

    def make(real: Any) -> Any:
        def begin(self: PartitionLog, end: int) -> LogFlush:
            job: LogFlush = real(self, end)
            job._files = job._files[-1:]
            return job

        return begin

    patch(PartitionLog, "start_flush", make)


def reuse_checkpoints_of_deleted_topic() -> None:
    """A topic that is created again gets the log start offset of its predecessor."""

    def make(real: Any) -> Any:
        def adopt(self: LogDirectory, log: PartitionLog) -> None:
            self.checkpoints._bounds.clear()
            real(self, log)

        return adopt

    patch(LogDirectory, "add_log", make)


def compact_newest_record() -> None:
    """The newest record of a key is removed, too."""
    patch(
        compaction,
        "retained_records",
        lambda real: lambda data, count, base, *rest, **named: real(data, count, base - 1, *rest, **named),
    )


def leave_compacted_segments_unsynced() -> None:
    """The compacted segment replaces the old ones before its bytes are on disk."""
    LogSegment.fsync = lambda _: None  # type: ignore[method-assign]


def skip_metadata_fsync() -> None:
    """The sync of the metadata log has no effect."""

    def make(real: Any) -> Any:
        def begin(self: MetadataStore) -> Any:
            job = real(self)
            job._files, job._paths, job.directory_change_count, job.syncs_parent = [], [], -1, False
            return job

        return begin

    patch(MetadataStore, "prepare_flush", make)


def acknowledge_unwritten_setting() -> None:
    """An altered config is not written, with a success response."""

    def nothing(*_: Any) -> Any:
        yield
        return []

    alter_configs._alter_resource = nothing


def skip_topic_deletion() -> None:
    """A deletion is not executed, with a success response."""

    def make(real: Any) -> Any:
        def delete(*rest: Any) -> Any:
            return dataclasses.replace((yield from real(*rest)), records=[])

        return delete

    patch(create_and_delete_topics, "delete_topics", make)


def skip_partition_creation() -> None:
    """New partitions are not created, with a success response."""

    def widen(*_: Any) -> Generator[None, None, list[Any]]:
        yield
        return []

    create_partitions._add_partitions = widen


def read_metadata_but_the_last() -> None:
    """The last batches of the metadata log are not read at a start."""
    begun: set[MetadataStore] = set()

    def make(real: Any) -> Any:
        def read(self: MetadataStore, *rest: int) -> Any:
            batches = list(real(self, *rest))
            kept = len(batches) if self in begun else -8  # some of the last are only heartbeats of the controller
            begun.update([self] if batches else ())
            return iter(batches[:kept])

        return read

    patch(MetadataStore, "committed_batches", make)


def forget_committed_positions() -> None:
    """Committed offsets of groups are not read at a start."""

    def make(real: Any) -> Any:
        def decode(key: Any, value: Any) -> Any:
            found = real(key, value)
            return None if found is not None and type(found.key).__name__ == "OffsetCommitKey" else found

        return decode

    patch(records, "decode", make)


def corrupt_read_byte() -> None:
    """A byte of each read of more than 100 bytes is changed, behind byte 5,000 of the files of partition t-0."""

    def make(real: Any) -> Any:
        def pread(self: MemoryFile, size: int, offset: int) -> bytes:
            raw: bytes = real(self, size, offset)
            if "/t-0/" in self._path and offset > 5000 and len(raw) > 100:
                raw = raw[:90] + bytes([raw[90] ^ 1]) + raw[91:]
            return raw

        return pread

    patch(MemoryFile, "pread", make)


def fetch_from_next_offset() -> None:
    """A fetch from an offset that 7 divides starts one record later."""
    patch(
        PartitionLog,
        "read",
        lambda real: (
            lambda self, offset, *rest, **named: real(
                self, min(offset + (offset % 7 == 0), max(self.log_end_offset, offset)), *rest, **named
            )
        ),
    )


def keep_files_of_deleted_topic() -> None:
    """The files of a deleted topic keep their names."""
    patch(
        log_directory.LogDirectory,
        "rename_for_deletion",
        lambda _: (
            lambda self, topic, partition, *rest: (
                self.logs.pop((topic, partition), None),
                f"{self.path}/{topic}-{partition}.gone-delete",
            )[1]
        ),
    )


def delete_first_kept_record() -> None:
    """DeleteRecords deletes the first record that it should keep, too."""
    patch(
        PartitionLog,
        "maybe_increment_log_start_offset",
        lambda real: lambda self, offset: real(self, min(offset + 1, self.high_watermark)),
    )


def reuse_producer_ids() -> None:
    """Every producer gets the same id."""
    ProducerIdManager.try_generate = lambda _: 7  # type: ignore[method-assign]


def skip_checksum_in_recovery() -> None:
    """Recovery accepts batches with a wrong checksum."""
    patch(LogSegment, "scan", lambda real: lambda self, position=0, **_: real(self, position, check=False))


def write_clean_shutdown_file_early() -> None:
    """The clean shutdown file is written before the flush."""

    def make(real: Any) -> Any:
        def close(self: LogDirectory, epoch: int) -> None:
            checkpoint_files.write_clean_shutdown_file(self.disk, self.path, epoch)
            real(self, epoch)

        return close

    patch(LogDirectory, "close", make)


def trust_indexes_after_crash() -> None:
    """Index entries are not rebuilt from the batches."""
    LogSegment.reset_indexes = lambda _: None  # type: ignore[method-assign]


def acknowledge_before_fsync() -> None:
    """A response does not wait for the disk."""

    def make(real: Any) -> Any:
        def due(self: LogMaintenance, replica: Any) -> None:
            replica.on_flushed(replica.log.log_end_offset, 0)
            real(self, replica)

        return due

    patch(LogMaintenance, "request_flush", make)


def delete_records_of_a_neighbour() -> None:
    """The handler, not the log, deletes records of the partition before the named one, if there is one."""

    def make(real: Any) -> Any:
        def handle(context: Any, request: Any) -> Any:
            for topic in request.topics:
                for row in topic.partitions:
                    row.partition_index = max(row.partition_index - 1, 0)
            return real(context, request)

        return handle

    patch(delete_records, "handle", make)


def cut_off_the_first_batch() -> None:
    """A first batch larger than the limits is cut off, for every partition but the first with records."""

    def make(real: Any) -> Any:
        def read(self: PartitionLog, offset: int, max_bytes: int, upper: int, *, at_least_one: bool) -> Any:
            part = real(self, offset, max_bytes, upper, at_least_one=True)
            if part is None or at_least_one:
                return part
            size = min(len(part), max_bytes)
            return FileSlice(part.file, part.offset, size) if size > 0 else None

        return read

    patch(PartitionLog, "read", make)


def return_records_above_the_last_stable_offset() -> None:
    """A read_committed consumer reads up to the high watermark."""

    def make(real: Any) -> Any:
        def read(self: PartitionLog, offset: int, max_bytes: int, upper: int, *, at_least_one: bool) -> Any:
            return real(self, offset, max_bytes, max(upper, self.high_watermark), at_least_one=at_least_one)

        return read

    patch(PartitionLog, "read", make)


def ignore_the_limit_of_a_partition() -> None:
    """In a fetch session, the limit of a partition is at least 1 MiB."""

    def make(real: Any) -> Any:
        def update(self: CachedPartition, part: Any) -> None:
            real(self, part)
            self.max_bytes = max(self.max_bytes, 1 << 20)

        return update

    patch(CachedPartition, "update_request_params", make)


def answer_a_partition_twice() -> None:
    """A full response contains its first partition again at the end."""

    def make(real: Any) -> Any:
        def grouped(rows: Any) -> Any:
            return real([*rows, *rows[:1]])

        return grouped

    patch(fetch_session_cache, "group_by_topic", make)
