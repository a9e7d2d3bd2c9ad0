"""File of `MemoryDisk`: current contents, durable contents, and the unsynced operations between the two."""

from __future__ import annotations

from typing import Protocol

from ottla.wire.codec.primitives import Buffer

SECTOR_BYTES = 512
SECTOR_SURVIVAL = 0.7
"""Probability that an unsynced sector survives a power failure with ``holes``."""


class RandomSource(Protocol):
    """Random number generator of the simulation, such as `random.Random`."""

    def random(self) -> float:
        """Return a random number in [0, 1)."""


class Inode:
    """Contents of a file in memory: current (page cache), durable (disk), and unsynced operations in order."""

    __slots__ = ("data", "dropped", "durable", "mode", "mtime_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes] | int] = []
        """Unsynced operations in order: (offset, bytes) for a write, the new size for a truncation."""
        self.dropped = False
        self.mtime_ms = 0
        self.mode = 0o644

    def write(self, data: Buffer, offset: int) -> None:
        """Write ``data`` at ``offset``, unsynced; a gap before it is filled with zeros."""
        if offset > len(self.data):
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.pending.append((offset, bytes(data)))

    def truncate(self, size: int) -> None:
        """Set the length to ``size`` bytes, unsynced; an extension is filled with zeros."""
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.pending.append(size)

    def sync(self) -> None:
        """Make the unsynced operations durable, except those dropped by a failed sync."""
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
        """Simulate a failed fsync: reads return unsynced operations, but no sync before `redirty_pages` writes them."""
        self.dropped = self.dropped or bool(self.pending)
        self.pending.clear()

    def redirty_pages(self) -> None:
        """Mark data dropped by a failed fsync as unsynced again after the process that got the error has ended.

        A new process cannot know of the error. Not every system does this; without it only another replica helps.
        """
        if self.dropped:
            self.dropped = False
            self.pending = [len(self.data), (0, bytes(self.data))]

    def lose_power(self, dice: RandomSource, *, holes: bool = False) -> None:
        """Reduce the contents to the durable bytes and a random prefix of the unsynced operations, the last maybe torn.

        With ``holes`` any unsynced sector may be lost, even if later ones survive. ``dice``: source of the choices.
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
