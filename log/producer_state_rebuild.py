"""Rebuild of the producer state as of an offset: newest readable producer snapshot plus replay of later batches.

Source: ``UnifiedLog.rebuildProducerState``, ``ProducerStateManager.truncateAndReload`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ottla.env.disk import Disk, read_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.file_names import parse_segment_file
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segment.log_segment import segment_file_name
from ottla.log.segment.log_segments import LogSegments
from ottla.wire.errors import WireError

_DIGITS = 20
_BATCHES_PER_YIELD = 16


class RecoveryScan(NamedTuple):
    """Result of recovery's scan of a log: first scanned offset, and whether a batch has a producer id."""

    first_base_offset: int
    """First scanned offset: transaction indexes from here on are empty and are refilled by replaying the batches.

    The log end offset if no segment was scanned.
    """
    has_producers: bool
    """True if any scanned batch has a producer id."""


def rebuild_producer_state(
    segments: LogSegments,
    log_start: int,
    log_end: int,
    notes: list[str],
    scan: RecoveryScan | None = None,
    *,
    restored: ProducerStateManager | None = None,
    has_remote_start: bool = False,
) -> ProducerStateManager:
    """Return the producer state as of the log end offset, and delete unreadable and unneeded producer snapshots.

    Unless ``restored`` is given, the newest usable snapshot is loaded and the later batches are replayed, which also
    fills the transaction indexes.

    After recovery (``scan``) the snapshot must not be newer than the scanned batches, or the transaction indexes would
    stay empty. A snapshot below the log start is not used: a transaction open in it may have ended below the log start.
    The one at the start is used if the log starts in the remote store (``has_remote_start``): it has the producers of
    the records there.

    A message is appended to ``notes`` for a damaged batch below the recovery point. ``restored`` is the state if the
    caller has it already: no snapshot is read then, since it may contain producers that have expired since, and
    transactions that have ended.
    """
    disk, directory = segments.disk, segments.directory
    states, offset = ProducerStateManager() if restored is None else restored, log_start
    names, oldest = list_snapshot_files(disk, directory), log_start if has_remote_start else log_start + 1
    for name in sorted(names, reverse=True):
        at = int(name[:_DIGITS])
        path = f"{directory}/{name}"
        if at > log_end:
            disk.unlink(path)
        elif restored is not None or at < oldest or (scan is not None and at > scan.first_base_offset):
            continue
        elif (found := load_producer_snapshot(disk, directory, at)) is not None:
            states, offset = found, at
            break
        else:
            disk.unlink(path)
    is_complete = restored is not None or (
        scan is not None and not scan.has_producers and offset >= scan.first_base_offset
    )
    if offset < log_end and not is_complete:
        _replay_batches_from(segments, states, offset, notes)
    keep = {segment_file_name(base, ".snapshot") for base in segments.base_offsets}
    newest = sorted(names)[-1:]
    for name in names:
        if name not in keep and name not in newest and disk.exists(f"{directory}/{name}"):
            disk.unlink(f"{directory}/{name}")
    return states


def list_snapshot_files(disk: Disk, directory: str) -> list[str]:
    """Return the names of the producer snapshot files in a partition's directory, in any order. Raises OSError."""
    files = ((name, parse_segment_file(name)) for name in disk.list_files(directory) if name.endswith(".snapshot"))
    return [name for name, file in files if file is not None]


def load_producer_snapshot(disk: Disk, directory: str, offset: int) -> ProducerStateManager | None:
    """Return the producer state in the snapshot file as of ``offset``; None if the file is missing or unreadable."""
    path = f"{directory}/{segment_file_name(offset, '.snapshot')}"
    try:
        return ProducerStateManager.unpack(read_file(disk, path), path, offset)
    except (CorruptFile, OSError):
        return None


def _replay_batches_from(segments: LogSegments, states: ProducerStateManager, offset: int, notes: list[str]) -> None:
    """Replay every batch from ``offset`` on into ``states``, and add its aborted transactions to the transaction index.

    At a damaged batch a message is appended to ``notes``, and the rest of its segment is skipped.
    """
    for segment in segments[segments.index(segments.segment_for(offset)) :]:
        try:
            for _, header, raw in segment.scan():
                if header.base_offset >= offset:
                    for aborted in states.replay(header, header.base_offset, raw):
                        segments.add_aborted_txn(aborted)
        except WireError as error:
            notes.append(f"Corruption found in segment {segment.path}.log while rebuilding producer state: {error}")
        if segment is not segments.active:
            segment.close()


def producer_state_below_job(
    segments: LogSegments, log_start: int, offset: int, *, has_remote_start: bool = False
) -> Generator[None, None, ProducerStateManager | None]:
    """Return the producer state that the log has after a later truncation to ``offset``, as a job.

    The result is that of `rebuild_producer_state` after the truncation, or None if the log cannot be read. The job
    yields every 16 batches, since a whole segment may have to be read; it changes no snapshot or transaction index.
    """
    states, begin, oldest = ProducerStateManager(), log_start, log_start if has_remote_start else log_start + 1
    for name in sorted(list_snapshot_files(segments.disk, segments.directory), reverse=True):
        at = int(name[:_DIGITS])
        is_usable = oldest <= at <= offset
        found = load_producer_snapshot(segments.disk, segments.directory, at) if is_usable else None
        if found is not None:
            states, begin = found, at
            break
    count = 0
    try:
        for segment in segments[segments.index(segments.segment_for(begin)) :]:
            for _, header, raw in segment.scan():
                if header.last_offset >= offset:
                    break
                if header.base_offset >= begin:
                    states.replay(header, header.base_offset, raw)
                count += 1
                if count % _BATCHES_PER_YIELD == 0:
                    yield
    except (WireError, OSError):
        return None
    return states
