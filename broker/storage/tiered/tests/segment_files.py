"""Local segments for tests of the stores, with real batches and indexes' bytes of any kind."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path

from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SegmentFiles,
)
from ottla.env.disk import Disk

TOPIC_ID = bytes(range(1, 17))


def segment_metadata(size: int, *, number: int = 0, start: int = 0, topic: str = "events") -> RemoteLogSegmentMetadata:
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(TOPIC_ID, topic, 3, random.Random(number).randbytes(16)),
        start_offset=start,
        end_offset=start + 99,
        max_timestamp_ms=1_767_830_400_000,
        broker_id=2,
        event_timestamp_ms=1_767_830_500_000 + number,
        segment_size_bytes=size,
        segment_leader_epochs={4: start, 7: start + 50},
    )


def write_segment(disk: Disk, directory: str, records: bytes, *, optional: bool = True, base: int = 0) -> SegmentFiles:
    """Write the files of a segment; without the producer snapshot and transaction index unless ``optional``."""
    disk.makedirs(directory)
    contents = {
        "log": records,
        "index": b"\x00\x00\x00\x10\x00\x00\x20\x00" * 100,
        "timeindex": b"\x00" * 12,
        "snapshot": b"snapshot of producers",
        "txnindex": b"aborted",
    }
    paths = {}
    for suffix, data in contents.items():
        path = f"{directory}/{base:020d}.{suffix}"
        if suffix in ("snapshot", "txnindex") and not optional:
            continue
        file = disk.open(path, create=True)
        file.truncate(0)
        file.pwrite(data, 0)
        file.close()
        paths[suffix] = Path(path)
    return SegmentFiles(
        paths["log"],
        paths["index"],
        paths["timeindex"],
        paths.get("snapshot"),
        paths.get("txnindex"),
        b"0\n2\n4 0\n7 50\n",
    )


@lru_cache(8)
def random_records(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)
