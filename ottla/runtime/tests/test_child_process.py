"""Jobs in a process of their own: results and errors come back, and no orphan works on."""

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


def add(ground: WorkerContext, pair: tuple[int, int]) -> tuple[int, int]:
    return sum(pair), os.getpid()


def refuse(ground: WorkerContext, text: str) -> None:
    raise WireError(text)


def die(ground: WorkerContext, number: int) -> None:
    os.kill(os.getpid(), number)


def wait(ground: WorkerContext, path: str) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)


def test_a_result_comes_back_from_another_process() -> None:
    result, pid = trio.run(run_in_child_process, add, (2, 3))
    assert result == 5
    assert pid != os.getpid()


def test_an_error_comes_back_as_itself_and_a_death_by_name() -> None:
    with pytest.raises(WireError, match="no batch"):
        trio.run(run_in_child_process, refuse, "no batch")
    with pytest.raises(ChildDied, match="status -9"):
        trio.run(run_in_child_process, die, signal.SIGKILL)


PARENT = """
import sys, trio
from ottla.runtime.child_process import run_in_child_process
from ottla.runtime.tests.test_child_process import wait
trio.run(run_in_child_process, wait, sys.argv[1])
"""


def test_a_child_ends_soon_after_its_parent_was_killed(tmp_path: os.PathLike[str]) -> None:
    mark = os.path.join(tmp_path, "pid")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mark])
    deadline = time.monotonic() + 20
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
