"""Work in forks of this process: a few at a time, each with a limit of processor time and memory."""

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
    """Pool of forks with a limit; each ends by itself or is killed at its deadline."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._running = jobs, dict[int, tuple[float, Callable[[int | None], None]]]()

    def start(
        self,
        work: Callable[[], int],
        limit_s: float,
        done: Callable[[int | None], None],
        output: str = os.devnull,
    ) -> None:
        """Run `work` in a fork as soon as fewer than `jobs` run; `done` gets its status, None after a timeout."""
        while len(self._running) >= self._jobs:
            self._poll()
        self._running[_fork(work, limit_s, output)] = (time.monotonic() + 15 + limit_s, done)

    def finish(self) -> None:
        """Wait for all."""
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
    """Kill the fork and its descendants."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
