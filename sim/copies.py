"""Copies of one partition on the disks of several nodes: equal, batch by batch, as they lie there."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from ottla.world.memory_disk import MemoryDisk

_HEAD = struct.Struct(">qi")
"""Base offset, and how many bytes come after these twelve."""

Batches = dict[int, bytes]
"""Base offset -> the batch's bytes."""


def batches_on(disk: MemoryDisk, topic: str, partition: int) -> Batches:
    """A partition's batches in the order of their segments, wherever its directory lies; whole ones only."""
    out: Batches = {}
    end = f"/{topic}-{partition}"
    for path in sorted(disk.files):
        directory, _, name = path.rpartition("/")
        if directory.endswith(end) and name.endswith(".log"):
            out.update(_batches(disk.files[path].data))
    return out


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


def differences(copies: Mapping[str, Batches], below: int | None = None) -> list[str]:
    """Where copies differ, from the first offset that all of them have on; ``below``: only up to there."""
    start = max((min(batches, default=0) for batches in copies.values()), default=0)
    bases = sorted({base for batches in copies.values() for base in batches if base >= start})
    out = []
    for base in bases:
        found = {name: batches.get(base) for name, batches in copies.items()}
        if (below is None or base < below) and len(set(found.values())) > 1:
            said = ", ".join(f"{name} {'nothing' if x is None else x.hex()[:150]}" for name, x in found.items())
            out.append(f"at {base}: {said}")
    return out
