"""Simulated hosts with a name, a disk, an inaccurate clock, and power that may fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from sim.engine.processes import SimProcess

EPOCH_MS = 1_800_000_000_000


class HostClock:
    """Wall clock and monotonic clock of a host, which may run at a wrong rate; the wall clock may also be wrong."""

    def __init__(self, true_s: Callable[[], float]) -> None:
        self._true_s = true_s
        self.offset_ms = 0
        """Offset of the wall clock from the true time in milliseconds."""
        self.rate = 1.0
        """Seconds of this clock per true second."""
        self._set_at_s = 0.0
        self._shown_s = 0.0

    def set(self, *, jump_ms: int, rate: float) -> None:
        """Change the wall clock by ``jump_ms``; set the rate of wall clock and monotonic clock (1.0 is correct)."""
        self._shown_s = self.monotonic_s()
        self._set_at_s = self._true_s()
        self.rate = rate
        self.offset_ms += jump_ms

    def monotonic_s(self) -> float:
        """Return the host's monotonic clock in seconds, which starts at 0 with the run."""
        return self._shown_s + (self._true_s() - self._set_at_s) * self.rate

    def wall_ms(self) -> int:
        """Return the host's wall clock in milliseconds since 1970."""
        return EPOCH_MS + self.offset_ms + int(self.monotonic_s() * 1000)


def journal_names(disk: MemoryDisk) -> None:
    """Make a random number of each directory's oldest unsynced file names durable, and remove the newer ones.

    Called at a power cut, before the disk loses unsynced data.
    """
    gone: dict[str, None] = {}
    for path in [x for x in disk.files if x not in disk.durable_files]:
        directory = path.rpartition("/")[0]
        if directory in gone or disk.random_source.random() < 0.3:
            gone[directory] = None
            del disk.files[path]
        else:
            disk.durable_files[path] = disk.files[path]


COLD_READ_INTERVAL = 5
"""Disk calls of which one finds no bytes in the page cache, if it is a read from that only."""


class SimHost:
    """Simulated machine: a disk, a clock, and the processes that run on it."""

    def __init__(self, name: str, rng: random.Random, true_s: Callable[[], float]) -> None:
        self.name = name
        self.clock = HostClock(true_s)
        self.disk = MemoryDisk(rng, self.clock.wall_ms)
        self.disk.cold_read_interval = COLD_READ_INTERVAL
        self.up = True
        self.journaled = False
        """True if the disk persists file names of a directory in the order of their creation, as journals do."""
        self.slow_s = 0.0
        """Maximum duration of an fsync in seconds."""
        self.processes: dict[SimProcess, None] = {}
        self.outbound_cut_until = 0.0
        """Time before which no data from this host arrives."""
        self.inbound_cut_until = 0.0
        """Time before which no data to this host arrives."""

    def lose_power(self) -> None:
        """Cut the power: every process ends without closing connections, and the disk loses unsynced data.

        The host is down until `power_up`.
        """
        self.up = False
        for process in list(self.processes):
            process.vanish()
        if self.journaled:
            journal_names(self.disk)
        self.disk.lose_power()

    def replace_disk(self, path: str) -> None:
        """Remove all files and directories below a path, as if its disk was replaced; the host must be down."""
        assert not self.up
        disk = self.disk
        for names in (disk.files, disk.durable_files, disk.dirs, disk.durable_dirs):
            for name in [x for x in names if x.startswith(f"{path}/")]:
                del names[name]

    def power_up(self) -> None:
        """Restore the power; no process is started, and old connections are reset on use."""
        self.up = True
