"""The last offset of each key, in bounded memory: what compaction decides by.

Source: ``SkimpyOffsetMap.java`` (apache/kafka 4.3.1), which keeps 16-byte digests of keys in a flat buffer.
"""

from __future__ import annotations

from hashlib import blake2b

ENTRY_BYTES = 160
"""About what an entry takes: a key of up to 32 bytes, an offset, the dictionary's own share."""
_WHOLE_KEY_BYTES = 31
_DIGEST_BYTES = 32


class OffsetMap:
    """Key to offset. A key longer than 31 bytes is kept as its digest of 32, so no key can be taken for another."""

    __slots__ = ("_offsets", "capacity", "latest_offset")

    def __init__(self, size_bytes: int) -> None:
        self.capacity = max(size_bytes // ENTRY_BYTES, 1)
        self.latest_offset = -1
        """The last offset that was looked at: behind it nothing is known."""
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Remember where a key was seen last; False, and nothing remembered, where there is no room for a new key."""
        if len(key) > _WHOLE_KEY_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        offsets = self._offsets
        offsets[key] = offset
        if len(offsets) > self.capacity:
            del offsets[key]
            return False
        return True

    def get(self, key: bytes) -> int:
        """Where a key was seen last; -1 where it was not."""
        if len(key) > _WHOLE_KEY_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)
