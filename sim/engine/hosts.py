"""Simulated hosts with a name, a disk, a clock that may be wrong, and power that may fail."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.env.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from sim.engine.processes import SimProcess

EPOCH_MS = 1_800_000_000_000


class HostClock:
    """A machine's clock: it stands wrong by an offset, runs too fast or slow, and is set now and then."""

    def __init__(self, true_s: Callable[[], float]) -> None:
        self._true_s = true_s
        self.offset_ms = 0
        """How far the wall clock is off."""
        self.rate = 1.0
        """Seconds of this clock in one true second."""
        self._set_at_s = 0.0
        self._shown_s = 0.0

    def set(self, *, jump_ms: int, rate: float) -> None:
        """Set the wall clock, and the rate of both clocks."""
        self._shown_s = self.monotonic_s()
        self._set_at_s = self._true_s()
        self.rate = rate
        self.offset_ms += jump_ms

    def monotonic_s(self) -> float:
        """Never goes back."""
        return self._shown_s + (self._true_s() - self._set_at_s) * self.rate

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as this machine believes."""
        return EPOCH_MS + self.offset_ms + int(self.monotonic_s() * 1000)


def journal_names(disk: MemoryDisk) -> None:
    """Of the names that are not synced the first few of each directory survive, and the rest is gone."""
    gone: dict[str, None] = {}
    for path in [x for x in disk.files if x not in disk.durable_files]:
        directory = path.rpartition("/")[0]
        if directory in gone or disk.random_source.random() < 0.3:
            gone[directory] = None
            del disk.files[path]
        else:
            disk.durable_files[path] = disk.files[path]


class SimHost:
    """Host with a disk, a clock and processes."""

    def __init__(self, name: str, rng: random.Random, true_s: Callable[[], float]) -> None:
        self.name = name
        self.clock = HostClock(true_s)
        self.disk = MemoryDisk(rng, self.clock.wall_ms)
        self.up = True
        self.journaled = False
        """Whether its disk keeps a name only with those made before it in the same directory, as journals do."""
        self.slow_s = 0.0
        """Longest time a sync takes on its disk."""
        self.processes: dict[SimProcess, None] = {}
        self.outbound_cut_until = 0.0
        """Nothing it sends arrives before."""
        self.inbound_cut_until = 0.0
        """Nothing sent to it arrives before."""

    def lose_power(self) -> None:
        """Cut the power: every process ends, and the disk keeps synced data; down until `power_up`."""
        self.up = False
        for process in list(self.processes):
            process.vanish()
        if self.journaled:
            journal_names(self.disk)
        self.disk.lose_power()

    def replace_disk(self, path: str) -> None:
        """Replace the disk below a path by an empty one."""
        assert not self.up
        disk = self.disk
        for names in (disk.files, disk.durable_files, disk.dirs, disk.durable_dirs):
            for name in [x for x in names if x.startswith(f"{path}/")]:
                del names[name]

    def power_up(self) -> None:
        """Start again without processes: old connections are reset on use."""
        self.up = True
