"""Execution of long computations (compaction) in a child process, so that they do not hold the interpreter lock.

Function, argument and result are pickled over pipes; the child runs one function, at low priority, and exits.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import trio

from ottla.env.env import ChildDied, WorkerContext
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.system_env import monotonic_s, sleep_blocking

T = TypeVar("T")
A = TypeVar("A")
NICENESS = 10


async def run_in_child_process(work: Callable[[WorkerContext, A], T], argument: A) -> T:
    """Run ``work(context, argument)`` in a child process, wait for its end, and return its result.

    The child is terminated on cancellation. ``work``, argument and result must be picklable.

    Raises:
        ChildDied: the child ended without a result; OSError: it could not be started; and any exception of ``work``.
    """
    done = await trio.run_process(
        [sys.executable, "-m", "ottla.runtime.child_process"],
        stdin=pickle.dumps((work, argument)),
        capture_stdout=True,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        raise ChildDied(f"the process that ran {work.__module__} ended with status {done.returncode}")
    good, result = pickle.loads(done.stdout)  # noqa: S301 - written by the child process
    if not good:
        raise result
    answer: T = result
    return answer


def _exit_with_parent(parent: int) -> None:
    """Exit this child process once the process ``parent`` has ended; called in a thread of its own.

    The child must not write to files while the next node does the same work.
    """
    never = threading.Event()
    while os.getppid() == parent:
        never.wait(0.2)
    os._exit(1)


def main() -> None:
    """Run the pickled function from standard input, and write its pickled result or exception to standard output."""
    os.nice(NICENESS)
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()
    work, argument = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - written by the parent process
    outcome: tuple[bool, Any]
    try:
        outcome = (True, work(WorkerContext(RealDisk(), monotonic_s, sleep_blocking), argument))
    except Exception as error:  # noqa: BLE001,RUF100 - the parent decides what it means
        outcome = (False, error)
    sys.stdout.buffer.write(pickle.dumps(outcome))


if __name__ == "__main__":
    main()
