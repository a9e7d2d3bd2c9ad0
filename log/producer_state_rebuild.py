"""Producer state as of a log's end: the newest snapshot that can be read, then the batches behind it.

Source: ``UnifiedLog.rebuildProducerState``, ``ProducerStateManager.truncateAndReload`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ottla.env.disk import Disk, read_file
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.file_names import parse_segment_file
from ottla.log.log_state import LogState, apply_batch
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.segment.log_segment import segment_file_name
from ottla.wire.errors import WireError

_DIGITS = 20
_BATCHES_PER_YIELD = 16


class RecoveryScan(NamedTuple):
    """What recovery read."""

    first_base_offset: int
    """Where it began: the transaction indexes from here on are empty, and filled as the batches are told again."""
    has_producers: bool
    """Whether any batch has a producer."""


def rebuild_producer_state(
    log: LogState, seen: RecoveryScan | None = None, *, none: bool = False, told: ProducerStateManager | None = None
) -> None:
    """Producer state as of the log end; snapshots of what is no longer there go.

    After recovery the snapshot must not be newer than what was read, or the transaction indexes would stay empty. Nor
    is one of use that is older than the log start: what it calls open may have ended in what is not read any more.
    ``none``: no producer is remembered, and it stays at that: no snapshot is taken either, which may know some that
    have been forgotten since, and transactions open that have ended. ``told``: what `producer_state_below_job` found.
    """
    if not none:
        log.producers = ProducerStateManager() if told is None else told
    log.verification_states.clear()
    offset = log.log_start_offset
    names = list_snapshot_files(log.disk, log.directory)
    for name in sorted(names, reverse=True):
        at = int(name[:_DIGITS])
        path = f"{log.directory}/{name}"
        if at > log.log_end_offset:
            log.disk.unlink(path)
        elif (
            none or told is not None or at <= log.log_start_offset or (seen is not None and at > seen.first_base_offset)
        ):
            continue
        elif (states := _load_snapshot(log, path, at)) is not None:
            log.producers, offset = states, at
            break
        else:
            log.disk.unlink(path)
    nothing_new = (
        none or told is not None or (seen is not None and not seen.has_producers and offset >= seen.first_base_offset)
    )
    if offset < log.log_end_offset and not nothing_new:
        _apply_batches_from(log, offset)
    keep = {segment_file_name(base, ".snapshot") for base in log.base_offsets}
    newest = sorted(names)[-1:]
    for name in names:
        if name not in keep and name not in newest and log.disk.exists(f"{log.directory}/{name}"):
            log.disk.unlink(f"{log.directory}/{name}")


def list_snapshot_files(disk: Disk, directory: str) -> list[str]:
    """Return the names of the producer snapshots in a partition's directory."""
    files = ((name, parse_segment_file(name)) for name in disk.list_files(directory) if name.endswith(".snapshot"))
    return [name for name, file in files if file is not None]


def _load_snapshot(log: LogState, path: str, at: int) -> ProducerStateManager | None:
    """The producer state of a snapshot file, as of an offset; None where it cannot be read."""
    try:
        states = ProducerStateManager.unpack(read_file(log.disk, path), path)
    except (CorruptFile, OSError):
        return None
    # It does not say where its transactions have ended, nor of whom it has forgotten.
    states.last_txn_end_offset = at - 1
    return states


def _apply_batches_from(log: LogState, offset: int) -> None:
    """Tell the producer state every batch from ``offset`` on; what is damaged below the recovery point is left out."""
    for segment in log.segments[log.segments.index(log.segment_for(offset)) :]:
        try:
            for _, header, raw in segment.scan():
                if header.base_offset >= offset:
                    log.update_producer_state(header, header.base_offset, raw)
        except WireError as error:
            log.recovery_notes.append(
                f"{segment.path}.log is damaged; its producers are known up to there only: {error}"
            )
        if segment is not log.active_segment:
            segment.close()


def producer_state_below_job(log: LogState, offset: int) -> Generator[None, None, ProducerStateManager | None]:
    """Producer state as of ``offset``, as `rebuild_producer_state` finds it after a cut, some batches a step.

    It may be a segment that is read, and others must run meanwhile. The log has its end until it is cut; None where it
    has changed until then, or cannot be read to the end, so that whoever cuts it has to look for himself.
    """
    before = [log.truncations, log.log_end_offset, log.log_start_offset, *log.segments]
    states, begin = ProducerStateManager(), log.log_start_offset
    names = list_snapshot_files(log.disk, log.directory)
    for name in sorted(names, reverse=True):
        at = int(name[:_DIGITS])
        found = _load_snapshot(log, f"{log.directory}/{name}", at) if log.log_start_offset < at <= offset else None
        if found is not None:
            states, begin = found, at
            break
    count = 0
    try:
        for segment in log.segments[log.segments.index(log.segment_for(begin)) :]:
            for _, header, raw in segment.scan():
                if header.last_offset >= offset:
                    break
                if header.base_offset >= begin:
                    apply_batch(states, header, header.base_offset, raw)  # transaction indexes keep what they have
                count += 1
                if count % _BATCHES_PER_YIELD == 0:
                    yield
    except (WireError, OSError):
        return None
    after = [log.truncations, log.log_end_offset, log.log_start_offset, *log.segments]
    return states if after == before else None
