"""Remote stores written without a node: copies of the segments that `log_directories` writes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.object_store import ObjectStore
from ottla.broker.storage.tiered.remote_storage import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentFiles
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.runtime.real_disk import RealDisk
from ottla.wire.codec.primitives import uuid_from_string
from ottla.wire.record_batch.batch_header import parse_header
from spark_it.ottla_log.log_directories import write_transaction_index

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Topic id that `write_partition` writes by default."""


def copy_to_store(
    store: Path,
    batches: Sequence[bytes],
    *,
    topic_id: str = TOPIC_ID,
    leader_epochs: Mapping[int, int] | None = None,
    aborted: Iterable[tuple[int, int, int]] = (),
    copied_at_ms: int = 0,
) -> Path:
    """Write a segment to a store in a directory, which is created, and return the path of its object.

    Its files are also in ``STORE-segments`` beside. The other arguments are those of `copy_segment`.
    """
    store.mkdir(exist_ok=True)
    local = store.with_name(f"{store.name}-segments")
    objects = DirectoryStore(RealDisk(), str(store))
    return store / copy_segment(
        objects,
        local,
        batches,
        topic_id=topic_id,
        leader_epochs=leader_epochs,
        aborted=aborted,
        copied_at_ms=copied_at_ms,
    )


def copy_segment(
    objects: ObjectStore,
    local: Path,
    batches: Sequence[bytes],
    *,
    topic_id: str = TOPIC_ID,
    leader_epochs: Mapping[int, int] | None = None,
    aborted: Iterable[tuple[int, int, int]] = (),
    copied_at_ms: int = 0,
) -> str:
    """Copy a segment of partition 0 of topic `t` to a store and return the name of its object.

    Args:
        objects: The store.
        local: Directory for the files of the segment, which stay there; it is created.
        batches: The batches of the segment.
        topic_id: The topic id.
        leader_epochs: Leader epochs with their first offsets up to the end of the segment; epoch 0 by default.
        aborted: Rows of the transaction index: producer id, first offset, last offset.
        copied_at_ms: Time of the copy.
    """
    headers = [parse_header(batch) for batch in batches]
    start, end = headers[0].base_offset, headers[-1].last_offset
    local.mkdir(exist_ok=True)
    files = {suffix: local / f"{start:020}.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex")}
    files["log"].write_bytes(b"".join(batches))
    positions = [sum(map(len, batches[:number])) for number in range(len(batches))]
    index = [struct.pack(">ii", each.last_offset - start, at) for each, at in zip(headers, positions, strict=True)]
    files["index"].write_bytes(b"".join(index[1:]))
    times = [struct.pack(">qi", each.max_timestamp, each.last_offset - start) for each in headers]
    files["timeindex"].write_bytes(b"".join(times[1:]))
    write_transaction_index(local, start, list(aborted))
    epochs = leader_epochs or {0: 0}
    lines = "".join(f"{epoch} {first}\n" for epoch, first in epochs.items())
    metadata = RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(uuid_from_string(topic_id), "t", 0, random.randbytes(16)),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=max(each.max_timestamp for each in headers),
        broker_id=1,
        event_timestamp_ms=copied_at_ms,
        segment_size_bytes=files["log"].stat().st_size,
        segment_leader_epochs=_epochs_in_range(epochs, start, end),
    )
    leader_epoch_file = f"0\n{len(epochs)}\n{lines}".encode()
    segment = SegmentFiles(files["log"], files["index"], files["timeindex"], None, files["txnindex"], leader_epoch_file)
    SegmentStore(objects, RealDisk()).copy_segment(metadata, segment)
    return object_name(metadata)


def _epochs_in_range(epochs: Mapping[int, int], start: int, end: int) -> dict[int, int]:
    """Return the epochs of the records from offset `start` to `end`, the first one with `start`."""
    entries = [*epochs.items()]
    ends = [first for _, first in entries[1:]] + [end + 1]
    return {
        epoch: max(first, start)
        for (epoch, first), until in zip(entries, ends, strict=True)
        if first <= end and until > start
    }
