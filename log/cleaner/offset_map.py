"""Map of each key to its last offset, in bounded memory, for a pass of log compaction.

Source: ``SkimpyOffsetMap.java`` (apache/kafka 4.3.1), which stores 16-byte digests of keys in a flat buffer.
"""

from __future__ import annotations

from ottla.wire.record_batch.record_scan import compact_key

ENTRY_BYTES = 160
"""Estimated memory of an entry: a key of up to 32 bytes, an offset, and the dictionary's overhead."""


class OffsetMap:
    """Map of key to last offset, with a maximum number of keys by memory.

    A key above 31 bytes is stored as a 32-byte digest, so that keys do not collide.
    """

    __slots__ = ("capacity", "latest_offset", "offsets")

    def __init__(self, size_bytes: int) -> None:
        self.capacity = max(size_bytes // ENTRY_BYTES, 1)
        self.latest_offset = -1
        """Offset up to which (inclusive) the log was read into the map, as the pass sets it; -1 at first."""
        self.offsets: dict[bytes, int] = {}
        """Last offsets, by key in the form of `record_scan.compact_key`."""

    def __len__(self) -> int:
        return len(self.offsets)

    def has_capacity_for(self, keys: int) -> bool:
        """Return True if ``keys`` further keys fit, even if all of them are new."""
        return len(self.offsets) + keys <= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Set the last offset of a key; return False, without a change, if the key is new and the map is full."""
        key, offsets = compact_key(key), self.offsets
        if key not in offsets and len(offsets) >= self.capacity:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset of a key; -1 if unknown."""
        return self.offsets.get(compact_key(key), -1)
