"""Resource usage of the process, read from ``/proc``, and with ``getrusage`` and ``getrlimit``.

Source: ``proc(5)``; the metrics are those of the Prometheus client libraries.
"""

from __future__ import annotations

import contextlib
import os
import resource
from functools import cache

from ottla.env.env import ProcessStats

_STAT_STARTED, _STAT_VIRTUAL, _STAT_RESIDENT = 19, 20, 21
"""Indices of fields of ``/proc/self/stat``, counted after the program's name."""


def _read(path: str) -> str:
    """Return the text of a file; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


@cache
def _boot_time_s() -> float:
    for line in _read("/proc/stat").split("\n"):
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0


def read_process_stats() -> ProcessStats:
    """Return the current resource usage of this process; 0 for values that ``/proc`` does not have.

    CPU time is of the process and its threads, without child processes. ``max_descriptors`` is the soft limit.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    fields = _read("/proc/self/stat").rpartition(")")[2].split()
    started_s = resident = virtual = 0.0
    if len(fields) > _STAT_RESIDENT:
        started_s = _boot_time_s() + int(fields[_STAT_STARTED]) / os.sysconf("SC_CLK_TCK")
        virtual = int(fields[_STAT_VIRTUAL])
        resident = int(fields[_STAT_RESIDENT]) * resource.getpagesize()
    disk = dict(line.split(": ") for line in _read("/proc/self/io").splitlines() if ": " in line)
    descriptors = 0
    with contextlib.suppress(OSError):
        descriptors = len(os.listdir("/proc/self/fd")) - 1
    return ProcessStats(
        usage.ru_utime + usage.ru_stime,
        int(resident),
        int(virtual),
        descriptors,
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started_s,
        int(disk.get("read_bytes", 0)),
        int(disk.get("write_bytes", 0)),
    )
