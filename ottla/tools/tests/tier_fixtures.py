"""Directory store with the rolled segments of real logs: transactions, aborted ones too, and two leader epochs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentFiles
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import create_log
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    append_committed,
    make_marker,
    make_transactional_batch,
)
from ottla.runtime.real_disk import RealDisk


def write_log(directory: Path, topic: str, partition: int) -> PartitionLog:
    """Write a log with several segments; close it."""
    where = directory / f"{topic}-{partition}"
    log = create_log(RealDisk(), str(where), topic, partition, TOPIC_ID, SMALL, NOW)
    for sequence in range(12):
        append_batches(log, 6, epoch=sequence // 6)
        append_committed(log, make_transactional_batch(9, sequence), epoch=sequence // 6)
        append_committed(log, make_marker(9, sequence % 2), epoch=sequence // 6)
    log.close()
    return log


def segment_id(number: int) -> bytes:
    return bytes([number]) * 16


def copy_segments(store: SegmentStore, log: PartitionLog, first_id: int = 1) -> list[RemoteLogSegmentMetadata]:
    """Copy all segments but the active one; return their metadata."""
    directory = Path(log.directory)
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    copied = []
    for number, (base, end) in enumerate(pairwise(bases)):
        paths = {path.suffix: path for path in directory.glob(f"{base:020d}.*")}
        snapshot = directory / f"{end:020d}.snapshot"
        epochs = [(epoch, start) for epoch, start in log.epochs.entries if start < end]
        within = {epoch: max(start, base) for epoch, start in epochs}
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId(TOPIC_ID, log.topic, log.partition, segment_id(first_id + number)),
            base,
            end - 1,
            NOW + end,
            1,
            NOW + number,
            paths[".log"].stat().st_size,
            {epoch: start for epoch, start in within.items() if epoch == epochs[-1][0] or _next(epochs, epoch) > base},
            txn_index_empty=".txnindex" not in paths,
        )
        text = "".join([f"0\n{len(epochs)}\n", *(f"{epoch} {start}\n" for epoch, start in epochs)])
        files = SegmentFiles(
            paths[".log"],
            paths[".index"],
            paths[".timeindex"],
            snapshot if snapshot.exists() else None,
            paths.get(".txnindex"),
            text.encode(),
        )
        copied.append(replace(metadata, custom_metadata=store.copy_segment(metadata, files)))
    return copied


def _next(epochs: list[tuple[int, int]], epoch: int) -> int:
    return next(start for later, start in epochs if later > epoch)


def filled_store(directory: Path) -> tuple[SegmentStore, PartitionLog, list[RemoteLogSegmentMetadata]]:
    """Return a store in ``directory/tier`` with the segments of t-0, its log, and their metadata."""
    (directory / "tier").mkdir()
    store = SegmentStore(DirectoryStore(RealDisk(), str(directory / "tier")), RealDisk())
    log = write_log(directory / "data", "t", 0)
    return store, log, copy_segments(store, log)
