"""Comparison of the replicas of a partition on the disks of several nodes, batch by batch."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

from ottla.env.memory_disk import MemoryDisk

_HEAD = struct.Struct(">qi")
"""Base offset of a batch, and number of bytes after these twelve."""

Batches = dict[int, bytes]
"""Bytes of each batch by base offset."""


class ReplicaCopy(NamedTuple):
    """Replica of a partition on one node: first offset on its disk, and complete batches."""

    start: int
    batches: Batches


def read_replica(disk: MemoryDisk, topic: str, partition: int) -> ReplicaCopy:
    """Return the complete batches of a partition on a disk, from all log directories; empty if it is in none.

    They are those that processes read, synced or not, without a check of their checksums.

    The first offset is that of the oldest batch; without a batch that of the oldest segment, else 0.
    """
    out: Batches = {}
    starts = []
    end = f"/{topic}-{partition}"
    for path in sorted(disk.files):
        directory, _, name = path.rpartition("/")
        if directory.endswith(end) and name.endswith(".log"):
            starts.append(int(name.removesuffix(".log")))
            out.update(_batches(disk.files[path].data))
    return ReplicaCopy(min(out, default=min(starts, default=0)), out)


def _batches(data: bytearray) -> Batches:
    out: Batches = {}
    at = 0
    while at + _HEAD.size <= len(data):
        base, size = _HEAD.unpack_from(data, at)
        if size <= 0 or at + _HEAD.size + size > len(data):
            break
        out[base] = bytes(data[at : at + _HEAD.size + size])
        at += _HEAD.size + size
    return out


def find_replica_differences(copies: Mapping[str, ReplicaCopy], below: int | None = None, start: int = 0) -> list[str]:
    """Return a text for each base offset at which replicas differ, from the highest of their starts on.

    ``start`` and ``below``: first base offset, and the one before which to stop (None: compare to the end).

    A log that a snapshot covers completely has no batch: it starts at the end of the snapshot.
    """
    start = max([start, *(copy.start for copy in copies.values())])
    bases = sorted({base for copy in copies.values() for base in copy.batches if base >= start})
    out = []
    for base in bases:
        found = {name: copy.batches.get(base) for name, copy in copies.items()}
        if (below is None or base < below) and len(set(found.values())) > 1:
            text = ", ".join(f"{name} {'nothing' if x is None else x.hex()[:150]}" for name, x in found.items())
            out.append(f"at {base}: {text}")
    return out
