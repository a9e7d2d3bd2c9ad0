"""Standalone cluster of Spark: master and workers as processes of this machine, from the jars that pyspark contains."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

import pyspark

from ottla.tools.free_ports import free_ports
from spark_it.pipelines.submit import PYTHONS

HOST = "127.0.0.1"
PORTS = range(31_000, 32_700)
START_WITHIN_S = 300.0
DAEMON_MEMORY = "256m"
WORKER_MEMORY = "1g"


class StandaloneSpark:
    """Context manager of a Spark cluster: a master and workers; each worker has one core and 1 GiB for executors.

    Entering starts them and waits until all ``workers`` are alive; leaving stops them. Logs and work directories are in
    ``folder``.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._port, self._ui_port = free_ports(HOST, 2, PORTS)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """URL of the master, ``spark://HOST:PORT``, as for ``--master`` of spark-submit."""
        return f"spark://{HOST}:{self._port}"

    def _spawn(self, name: str, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        own = {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": DAEMON_MEMORY, "SPARK_LOCAL_IP": HOST}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main_class}", *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **PYTHONS, **own})

    def _start_worker(self, number: int) -> subprocess.Popen[bytes]:
        limits = ("--cores", "1", "--memory", WORKER_MEMORY, "--work-dir", str(self._folder / f"work-{number}"))
        ports = ("--host", HOST, "--webui-port", "0")
        return self._spawn(f"worker-{number}", "worker.Worker", *ports, *limits, self.master)

    def alive_workers(self) -> int:
        """Return the number of workers that the master counts as alive; 0 if the master does not respond within 5 s."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._ui_port}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (urllib.error.URLError, OSError):
            return 0

    def wait_for_workers(self, count: int) -> None:
        """Wait until at least ``count`` workers are alive.

        Raises:
            RuntimeError: they are not within `START_WITHIN_S`.
        """
        deadline = time.monotonic() + START_WITHIN_S
        while self.alive_workers() < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"fewer than {count} workers of Spark after {START_WITHIN_S} s: see {self._folder}")
            time.sleep(0.1)

    def kill_worker(self, number: int) -> None:
        """End worker ``number``, from 0, by SIGKILL, and wait for its end; its executors end with it."""
        self._workers[number].kill()
        self._workers[number].wait()

    def restart_worker(self, number: int) -> None:
        """Start killed worker ``number`` again, without waiting until the master counts it."""
        self._workers[number] = self._start_worker(number)

    def __enter__(self) -> StandaloneSpark:
        self._folder.mkdir(parents=True, exist_ok=True)
        ports = ("--host", HOST, "--port", str(self._port), "--webui-port", str(self._ui_port))
        self._master = self._spawn("master", "master.Master", *ports)
        try:
            self._workers = [self._start_worker(number) for number in range(self._count)]
            self.wait_for_workers(self._count)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        processes = [*self._workers, *([self._master] if self._master else [])]
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(300)
