"""Offline recovery of the partitions of a log directory while no node runs: as a dry run with a report, or for real.

Both run `log.recovery`; the dry run uses a `DryRunDisk`, so that no file is changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.dry_run_disk import DryRunDisk
from ottla.log.recovery.log_loader import open_log
from ottla.wire.errors import WireError
from ottla.wire.record_batch.records import iterate_records


class PartitionReport(NamedTuple):
    """Result of the dry run of a partition's recovery; offsets are -1 if the log cannot be opened."""

    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    truncated_bytes: int
    """Bytes that recovery would truncate from segments."""
    removed_files: list[str]
    """Names of files that recovery would remove."""
    recovery_notes: list[str]
    """Messages of recovery about its changes and their reasons."""
    problem: str | None
    """Error that prevents opening the log, or malformed records in a batch that recovery accepts; None for neither."""


def repair(disk: Disk, data_dir: str, now_ms: int) -> Iterator[str]:
    """Recover every partition from its first batch on, rewriting indexes and snapshots; yield messages for the user.

    The metadata log is left out. It works while it is iterated. The clean shutdown file is removed, so that the next
    start recovers all logs. A log that cannot be recovered is left unchanged. ``now_ms``: wall clock.

    Raises:
        CorruptFile: ``meta.properties`` is missing or malformed; OSError: the disk failed.
    """
    directory = LogDirectory(disk, data_dir)
    if directory.read_meta_properties() is None:
        raise CorruptFile(f"Not a log directory: {data_dir} has no meta.properties")
    directory.load_checkpoints()
    directory.remove_clean_shutdown_file()
    directory.ignore_checkpoints()
    for topic, partition in sorted(directory.partition_dirs()):
        try:
            log = directory.open_partition(topic, partition, LogConfig(compact=True), now_ms)
        except (CorruptFile, WireError) as error:
            yield f"Unable to recover log {topic}-{partition} (left unchanged): {error}"
            continue
        yield from log.recovery_notes
        log.close()
    directory.checkpoints.write()


def check(disk: Disk, data_dir: str, now_ms: int, *, deep: bool = True) -> Iterator[PartitionReport]:
    """Yield a report on the dry run of each partition's recovery, from its first batch on; no file is changed.

    The metadata log is left out. ``deep`` also parses all records. ``now_ms``: wall clock.

    Raises:
        CorruptFile: ``meta.properties`` is missing or malformed.
    """
    directory = LogDirectory(disk, data_dir)
    if directory.read_meta_properties() is None:
        raise CorruptFile(f"Not a log directory: {data_dir} has no meta.properties")
    for (topic, partition), path in sorted(directory.partition_dirs().items()):
        rehearsal = DryRunDisk(disk)
        yield _check_partition(rehearsal, path, topic, partition, now_ms, deep=deep)


def _check_partition(
    disk: DryRunDisk, path: str, topic: str, partition: int, now_ms: int, *, deep: bool
) -> PartitionReport:
    problem, notes = None, []
    start = end = -1
    try:
        # Compacted logs may have gaps; which topics are compacted is unknown here, so every log may have them.
        log = open_log(disk, path, topic, partition, LogConfig(compact=True), now_ms, clean=False)
        start, end, notes = log.log_start_offset, log.log_end_offset, log.recovery_notes
        problem = _find_malformed_records(log) if deep else None
    except (CorruptFile, OSError, WireError) as error:
        problem = str(error)
    gone = sorted(name.rpartition("/")[2] for name in disk.removed_files if name not in disk.changed_files)
    return PartitionReport(topic, partition, start, end, sum(disk.truncated_bytes.values()), gone, notes, problem)


def _find_malformed_records(log: PartitionLog) -> str | None:
    """Return the error of the first batch with a valid checksum and malformed records; None if there is none."""
    for segment in log.segments:
        try:
            for _, header, raw in segment.scan():
                try:
                    sum(1 for _ in iterate_records(raw, header))
                except WireError as error:
                    return f"the batch at offset {header.base_offset} has a valid checksum and invalid records: {error}"
        finally:
            segment.close()
    return None
