"""Jobs in a child process: results, errors, and end of an orphaned child."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import trio

from ottla.env.env import ChildDied, WorkerContext
from ottla.runtime.child_process import run_in_child_process
from ottla.wire.errors import WireError


def add(context: WorkerContext, pair: tuple[int, int]) -> tuple[int, int]:
    return sum(pair), os.getpid()


def fail(context: WorkerContext, text: str) -> None:
    raise WireError(text)


def die(context: WorkerContext, number: int) -> None:
    os.kill(os.getpid(), number)


def wait(context: WorkerContext, path: str) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)


def test_run_in_child_process_returns_result() -> None:
    result, pid = trio.run(run_in_child_process, add, (2, 3))
    assert result == 5
    assert pid != os.getpid()


def test_run_in_child_process_raises_error_or_child_died() -> None:
    with pytest.raises(WireError, match="no batch"):
        trio.run(run_in_child_process, fail, "no batch")
    with pytest.raises(ChildDied, match="status -9"):
        trio.run(run_in_child_process, die, signal.SIGKILL)


PARENT = """
import sys, trio
from ottla.runtime.child_process import run_in_child_process
from ottla.runtime.tests.test_child_process import wait
trio.run(run_in_child_process, wait, sys.argv[1])
"""


def test_child_process_ends_after_parent_was_killed(tmp_path: os.PathLike[str]) -> None:
    mark = os.path.join(tmp_path, "pid")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mark])
    deadline = time.monotonic() + 120
    while not (os.path.exists(mark) and os.path.getsize(mark)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with open(mark) as file:
        child = int(file.read())
    parent.kill()
    parent.wait()
    while os.path.exists(f"/proc/{child}/cmdline"):
        with open(f"/proc/{child}/cmdline", "rb") as cmdline:
            if not cmdline.read():
                break  # a zombie
        assert time.monotonic() < deadline
        time.sleep(0.05)
