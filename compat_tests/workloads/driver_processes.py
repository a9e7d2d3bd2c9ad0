"""Driver processes of the clients: jobs as JSON lines on stdin, results and events on stdout."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import queue
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, TextIO

from compat_tests.clients.client_matrix import SOURCES, ToolchainMissing, _fetched
from compat_tests.support.jars import CACHE, ROOT, classpath, jars

JOB_GRACE_S = 90.0
"""Seconds after its own timeout until a job counts as hung."""


class JobTimeout(Exception):
    """Error: a job did not respond within its time."""


class Driver:
    """Driver process, which runs any number of jobs at once."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self._writing = threading.Lock()
        self._start()

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT
            )
        assert self._process.stdout is not None
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, output: TextIO) -> None:
        for line in output:
            message = json.loads(line)
            waiting = self._answers.get(message["id"])
            if waiting is not None:
                waiting.put(message)
        for number, waiting in list(self._answers.items()):
            waiting.put({"id": number, "failure": f"driver ended: {self._log.read_text()[-2000:]}"})

    def start_job(self, job: dict[str, Any]) -> int:
        """Send a job and return its number. A process that ended is started again."""
        if self._process.poll() is not None:
            self._start()
        number = next(self._numbers)
        self._answers[number] = queue.Queue()
        with self._writing:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({**job, "id": number}) + "\n")
            self._process.stdin.flush()
        return number

    def wait(self, number: int, timeout_s: float, event: str = "") -> dict[str, Any]:
        """Return the result of a job, or the first message when ``event`` is awaited.

        Raises:
            JobTimeout: No message came in time. The driver is started again, its other jobs are lost.
        """
        answers = self._answers[number]
        while True:
            try:
                message = answers.get(timeout=timeout_s)
            except queue.Empty:
                raise JobTimeout(f"job {number} did not answer within {timeout_s:.0f} s") from None
            if "event" not in message:
                if event:
                    answers.put(message)
                else:
                    del self._answers[number]
                return message
            if event:
                return message

    def call(self, job: dict[str, Any], timeout_s: float = 120.0) -> dict[str, Any]:
        """Run a job to its end."""
        return self.wait(self.start_job(job), timeout_s)

    def restart(self) -> None:
        """End the process and start another one."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def java_command() -> list[str]:
    """Return the command of the Java driver, compiled on first use.

    Raises:
        ToolchainMissing: There is no JDK.
    """
    jars("kafka")
    if shutil.which("javac") is None:
        raise ToolchainMissing("no javac on this machine")
    where = _fetched("workload_java", ["javac", "-nowarn", "-cp", classpath(), "Driver.java"])
    return ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{where}:{classpath()}", "Driver"]


def go_command() -> list[str]:
    """Return the command of the driver of franz-go, built on first use.

    Raises:
        ToolchainMissing: There is no Go.
    """
    return [str(_fetched("workload_go", ["go", "build", "-o", "driver", "."]) / "driver")]


def driver_commands() -> dict[str, list[str]]:
    """Return the commands of all drivers, built where they are not.

    Raises:
        ToolchainMissing: A toolchain is missing.
    """
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "clients.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        python = [sys.executable, "-m", "compat_tests.workloads.python_driver"]
        return {"java": java_command(), "go": go_command(), "python": python}


__all__ = ["JOB_GRACE_S", "SOURCES", "Driver", "JobTimeout", "ToolchainMissing", "driver_commands"]
