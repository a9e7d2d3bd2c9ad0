"""A file of a disk in memory: what is read of it, what a power cut leaves, and what was written between the two."""

from __future__ import annotations

from typing import Protocol

from ottla.wire.codec.primitives import Buffer

SECTOR_BYTES = 512
SECTOR_SURVIVAL = 0.7
"""Share of unsynced sectors that survive where there are holes."""


class RandomSource(Protocol):
    """The one thing asked of chance."""

    def random(self) -> float:
        """Return a number in [0, 1)."""


class Inode:
    """A file's bytes: what is seen, what is durable, and the writes between the two."""

    __slots__ = ("data", "dropped", "durable", "mode", "mtime_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []
        """Unsynced operations: (offset, bytes) for a write, a size for a truncation."""
        self.dropped = False
        self.mtime_ms = 0
        self.mode = 0o644

    def write(self, data: Buffer, offset: int) -> None:
        """Write; a hole before it is filled with zeros."""
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.pending.append((offset, bytes(data)))

    def truncate(self, size: int) -> None:
        """Cut or extend."""
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.pending.append(size)

    def sync(self) -> None:
        """Make durable what is seen and was not given up."""
        for operation in self.pending:
            if isinstance(operation, int):
                del self.durable[operation:]
                self.durable.extend(bytes(operation - len(self.durable)))
                continue
            offset, raw = operation
            if offset > len(self.durable):
                self.durable.extend(bytes(offset - len(self.durable)))
            self.durable[offset : offset + len(raw)] = raw
        self.pending.clear()

    def drop_dirty_pages(self) -> None:
        """Mark pages as clean after a failed sync, so that no later sync writes them. Reads still return them."""
        self.dropped = self.dropped or bool(self.pending)
        self.pending.clear()

    def redirty_pages(self) -> None:
        """Mark the data as unsynced after the process that saw the fsync error has ended.

        A new process cannot know of the error. Not every system does this; on others only another replica helps.
        """
        if self.dropped:
            self.dropped = False
            self.pending = [len(self.data), (0, bytes(self.data))]

    def lose_power(self, dice: RandomSource, *, holes: bool = False) -> None:
        """Keep the durable bytes and a prefix of the unsynced operations, the last of them perhaps torn.

        With ``holes`` any sector of those may be missing though later ones are there.
        """
        kept = int(dice.random() * (len(self.pending) + 1))
        data = bytearray(self.durable)
        for number, operation in enumerate(self.pending[:kept]):
            if isinstance(operation, int):
                del data[operation:]
                data.extend(bytes(operation - len(data)))
                continue
            offset, raw = operation
            if number == kept - 1 and dice.random() < 0.5:
                raw = raw[: int(dice.random() * (len(raw) // SECTOR_BYTES + 1)) * SECTOR_BYTES]
            end = offset + len(raw)
            if end > len(data):
                data.extend(bytes(end - len(data)))
            if not holes:
                data[offset:end] = raw
                continue
            while raw:
                size = min(SECTOR_BYTES - offset % SECTOR_BYTES, end - offset)
                if dice.random() < SECTOR_SURVIVAL:
                    data[offset : offset + size] = raw[:size]
                offset, raw = offset + size, raw[size:]
        self.data = data
        self.durable = bytearray(data)
        self.pending.clear()
