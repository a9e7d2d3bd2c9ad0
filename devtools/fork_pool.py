"""Pool of forks of this process, for mutation tests: each fork has limits of processor time and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable

MEMORY_BYTES = 4 << 30
_PR_SET_PDEATHSIG = 1


def _quiet(output: str) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    out = os.open(output, os.O_WRONLY | os.O_CREAT)
    for fd in (1, 2):
        os.dup2(out, fd)


def _fork(work: Callable[[], int], cpu_s: float, output: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the end of the parent ends its forks, too
        _quiet(output)
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 2))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        code = work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        code = 71
    finally:
        os._exit(code)


class ForkPool:
    """Pool of at most ``jobs`` forks at a time; each ends by itself or is killed at its deadline."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._running = jobs, dict[int, tuple[float, Callable[[int | None], None]]]()

    def start(
        self,
        work: Callable[[], int],
        limit_s: float,
        done: Callable[[int | None], None],
        output: str = os.devnull,
    ) -> None:
        """Wait until fewer than `jobs` forks run, start a fork, and return without waiting for its end.

        Args:
            work: called in the fork; its result is the exit status.
            limit_s: limit of its processor time in seconds; it is killed 15 s after as much time by the clock.
            done: called in this process, by a later call of `start` or `finish`, with the exit status (negative for a
                signal), or with None if the fork was killed at the deadline.
            output: file for standard output and standard error of the fork.
        """
        while len(self._running) >= self._jobs:
            self._poll()
        self._running[_fork(work, limit_s, output)] = (time.monotonic() + 15 + limit_s, done)

    def finish(self) -> None:
        """Wait until all forks have ended, and call their `done` functions."""
        while self._running:
            self._poll()

    def _poll(self) -> None:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in self._running:
            _end_group(pid)
            self._running.pop(pid)[1](os.waitstatus_to_exitcode(status))
            return
        for late in [p for p, (deadline, _) in self._running.items() if time.monotonic() > deadline]:
            _end_group(late)
            os.waitpid(late, 0)
            self._running.pop(late)[1](None)
        time.sleep(0.005)


def _end_group(pid: int) -> None:
    """Kill a fork and its descendants, which are the process group ``pid``; do nothing if there are none."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
