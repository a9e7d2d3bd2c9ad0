"""The last offset of each key, in bounded memory: what compaction decides by.

Source: ``SkimpyOffsetMap.java`` (apache/kafka 4.3.1), which keeps 16-byte digests of keys in a flat buffer.
"""

from __future__ import annotations

from ottla.wire.record_batch.record_scan import compact_key

ENTRY_BYTES = 160
"""About what an entry takes: a key of up to 32 bytes, an offset, the dictionary's own share."""


class OffsetMap:
    """Key to offset. A key longer than 31 bytes is kept as its digest of 32, so no key can be taken for another."""

    __slots__ = ("capacity", "latest_offset", "offsets")

    def __init__(self, size_bytes: int) -> None:
        self.capacity = max(size_bytes // ENTRY_BYTES, 1)
        self.latest_offset = -1
        """The last offset that was looked at: behind it nothing is known."""
        self.offsets: dict[bytes, int] = {}
        """By key, as `record_scan.compact_key` has it."""

    def __len__(self) -> int:
        return len(self.offsets)

    def has_capacity_for(self, keys: int) -> bool:
        """Return True if that number of new keys fits for certain."""
        return len(self.offsets) + keys <= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Store the last offset of a key; return False, without storing it, if there is no room for a new key."""
        key, offsets = compact_key(key), self.offsets
        if key not in offsets and len(offsets) >= self.capacity:
            return False
        offsets[key] = offset
        return True

    def get(self, key: bytes) -> int:
        """Return the last offset of a key; -1 if unknown."""
        return self.offsets.get(compact_key(key), -1)
