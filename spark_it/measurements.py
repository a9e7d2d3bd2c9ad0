"""Measurements of this machine, read from ``/proc``: cpu per core, memory, network, disk, load."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
SECTOR_BYTES = 512


class Measurement(NamedTuple):
    """Value of a metric, such as ``cpu.0``, at an instant, in ``unit``."""

    metric: str
    unit: str
    value: float


def _cpu_times() -> dict[str, tuple[int, int]]:
    """Return busy and total time of each core since boot, in jiffies; idle and waiting for I/O is not busy."""
    out = {}
    for line in (PROC / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            numbers = [int(x) for x in fields]
            out[name] = (sum(numbers) - numbers[3] - numbers[4], sum(numbers))
    return out


def _memory() -> Iterator[Measurement]:
    fields = dict(line.split(":", 1) for line in (PROC / "meminfo").read_text().splitlines())
    kib = {name: int(text.split()[0]) for name, text in fields.items()}
    yield Measurement("memory.used", "bytes", 1024.0 * (kib["MemTotal"] - kib["MemAvailable"]))
    yield Measurement("memory.cached", "bytes", 1024.0 * kib["Cached"])


def _network_bytes() -> dict[str, int]:
    received = sent = 0
    for line in (PROC / "net" / "dev").read_text().splitlines()[2:]:
        fields = line.split(":", 1)[1].split()
        received += int(fields[0])
        sent += int(fields[8])
    return {"network.received": received, "network.sent": sent}


def _disk_bytes() -> dict[str, int]:
    read = written = 0
    for line in (PROC / "diskstats").read_text().splitlines():
        fields = line.split()
        if not fields[2].startswith(("loop", "ram")):
            read += int(fields[5]) * SECTOR_BYTES
            written += int(fields[9]) * SECTOR_BYTES
    return {"disk.read": read, "disk.written": written}


class Sampler:
    """Sampler of this machine's ``/proc``: cpu, network and disk as rates since the last sample, and memory and load.

    The first sample counts from the construction on.
    """

    def __init__(self) -> None:
        self._cpu = _cpu_times()
        self._counters = {**_network_bytes(), **_disk_bytes()}
        self._at = time.monotonic()

    def sample(self) -> list[Measurement]:
        """Return the measurements since the last sample, and present ones of memory and load.

        These are cpu in percent by core, network and disk in bytes/s, memory in bytes, and the load of the last minute.
        """
        now = time.monotonic()
        passed = max(now - self._at, 1e-6)
        out = []
        cpu = _cpu_times()
        for core, (busy, total) in cpu.items():
            old_busy, old_total = self._cpu[core]
            share = (busy - old_busy) / (total - old_total) if total > old_total else 0.0
            out.append(Measurement(f"cpu.{core[3:]}", "percent", 100 * share))
        counters = {**_network_bytes(), **_disk_bytes()}
        for name, value in counters.items():
            out.append(Measurement(name, "bytes/s", (value - self._counters[name]) / passed))
        out += _memory()
        out.append(Measurement("load.1m", "runnable", float((PROC / "loadavg").read_text().split()[0])))
        self._cpu, self._counters, self._at = cpu, counters, now
        return out


def as_record(measurement: Measurement, event_ms: int) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Return a measurement as key (``HOST/METRIC``), value (JSON with ``event_ms``) and headers of a record."""
    host = socket.gethostname()
    value = {"host": host, "metric": measurement.metric, "value": round(measurement.value, 3), "event_ms": event_ms}
    headers = [("unit", measurement.unit.encode()), ("source", b"/proc")]
    return f"{host}/{measurement.metric}".encode(), json.dumps(value).encode(), headers
