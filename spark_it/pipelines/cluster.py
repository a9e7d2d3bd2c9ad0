"""Command ``make spark-cluster``: starts three nodes and a standalone Spark cluster, and runs pipelines on them.

Without a pipeline the clusters run until they are interrupted. With ``--kill`` a worker of Spark, a broker and the
driver are ended by SIGKILL while the pipeline runs; the driver is started again and continues from its checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ottla
from compat_tests.support.jars import jars
from spark_it.pipelines.pipeline import NAMES, InputRecord, Pipeline, ResultTable, create_topics, load, skip_wait
from spark_it.pipelines.standalone import HOST, StandaloneSpark
from spark_it.pipelines.submit import ROOT, environment, packages, submit_command

WORK = ROOT / ".cache" / "spark-cluster"
BATCHES = 5
FINISH_WITHIN_S = 1800.0
POLL_S = 0.1
KILLED_BROKER = 2
MAX_FAILURES = 3
"""Number of times that a driver which failed or stalled is started again, as by a supervisor."""
STALLED_S = 240.0
"""Time in seconds without a committed batch after which a driver is stalled.

A call of a transactional producer (librdkafka 2.16) may not return, not even after its timeout, if its coordinator was
killed.
"""


class SubmittedJob:
    """Pipeline that spark-submit executes in a process group of its own; the constructor starts it.

    With ``restarts``, a driver that fails or stalls (`STALLED_S`) is started again up to so many times, and continues
    from its checkpoint: it may fail when brokers and executors are killed.
    """

    def __init__(
        self, pipeline: Pipeline, master: str, bootstrap: str, folder: Path, records: int, *, restarts: int = 0
    ) -> None:
        self._restarts = restarts
        self._batches = 0
        """Committed batches when progress was last looked for."""
        self._folder = folder
        self._log = folder / "spark.log"
        used = [*jars("spark"), *(jars("lake") if pipeline.packages else [])]
        self._command = submit_command(pipeline, master, bootstrap, folder, records // BATCHES, {}, used)
        folder.mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """Start the driver process without waiting for it; its output is appended to ``spark.log``."""
        with self._log.open("ab") as log:
            own = {**environment(), "SPARK_LOCAL_IP": HOST}
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=own, start_new_session=True)
        self._progress_s = time.monotonic()

    def committed_batches(self) -> int:
        """Return the number of committed batches of the query that has the most; 0 before the first."""
        checkpoints = (self._folder / "checkpoint").glob("*/commits")
        return max((sum(name.isdigit() for name in os.listdir(path)) for path in checkpoints), default=0)

    def wait_for_batches(self, count: int) -> bool:
        """Wait until ``count`` batches are committed; return False if the driver has ended by then.

        Raises:
            RuntimeError: neither happened within `FINISH_WITHIN_S`; the driver is killed.
        """
        self._wait(lambda: self.committed_batches() >= count or self._has_ended())
        return self._process.poll() is None

    def _has_ended(self) -> bool:
        """Return True if the driver has ended.

        A failed or stalled driver is started again while restarts are left; the result is False then.
        """
        if self._restarts and (self._process.poll() or self._is_stalled()):
            self._restarts -= 1
            self.kill()
            self.start()
        return self._process.poll() is not None

    def _is_stalled(self) -> bool:
        batches = self.committed_batches()
        if batches != self._batches:
            self._batches, self._progress_s = batches, time.monotonic()
        return time.monotonic() - self._progress_s > STALLED_S

    def kill(self) -> None:
        """End the driver's process group, its JVM and its Python process, by SIGKILL, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def result(self) -> ResultTable:
        """Wait until the driver has ended, and return the rows of its result.

        Raises:
            RuntimeError: the driver failed, or did not end within `FINISH_WITHIN_S` and is killed; the message has the
                end of its log.
        """
        self._wait(self._has_ended)
        if self._process.returncode:
            raise RuntimeError(f"the driver failed with {self._process.returncode}:\n{self._log.read_text()[-5000:]}")
        return [tuple(row) for row in json.loads((self._folder / "result.json").read_text())]

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + FINISH_WITHIN_S
        while not condition():
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"no progress: {self.committed_batches()} batches\n{self._log.read_text()[-5000:]}")
            time.sleep(POLL_S)


def run_with_kills(job: SubmittedJob, spark: StandaloneSpark, nodes: ottla.Cluster) -> ResultTable:
    """Kill a worker and a broker after the first batch, the driver after the second; return the result.

    All three are started again, after the driver was killed.

    Raises:
        RuntimeError: the driver failed by itself, or ended before it was killed.
    """
    is_running = job.wait_for_batches(1)
    spark.kill_worker(0)
    nodes.kill(KILLED_BROKER)
    is_running = is_running and job.wait_for_batches(2)
    if not is_running:
        raise RuntimeError(f"the driver ended before it was killed, with {len(job.result()):,} rows: use more batches")
    job.kill()
    spark.restart_worker(0)
    nodes.restart(KILLED_BROKER)
    spark.wait_for_workers(2)
    job.start()
    return job.result()


def run_pipeline(
    pipeline: Pipeline, spark: StandaloneSpark, nodes: ottla.Cluster, folder: Path, size: int, *, kill: bool
) -> tuple[ResultTable, list[InputRecord]]:
    """Create the topics of a pipeline, send about ``size`` records, run its job, and return its result and its input.

    ``kill``: kill a worker, a broker and the driver while it runs.

    Raises:
        RuntimeError: the driver failed.
    """
    bootstrap = nodes.bootstrap_servers
    create_topics(bootstrap, pipeline, replicas=3)
    records = list(pipeline.make_input(size, skip_wait))
    pipeline.send(bootstrap, records)
    restarts = MAX_FAILURES if kill else 0
    job = SubmittedJob(pipeline, spark.master, bootstrap, folder, len(records), restarts=restarts)
    return (run_with_kills(job, spark, nodes) if kill else job.result()), records


def main() -> None:
    """Start both clusters and run the pipelines that the command line names; without names wait for an interrupt.

    Raises:
        SystemExit: a result differs from what plain Python computes from the same input.
        RuntimeError: a driver failed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", nargs="*", choices=(*NAMES, "template", "all", []), default=[])
    parser.add_argument("--size", type=int, help="approximate number of input records")
    parser.add_argument("--kill", action="store_true", help="kill a worker, a broker and the driver on the way")
    options = parser.parse_args()
    names = NAMES if "all" in options.pipeline else options.pipeline
    shutil.rmtree(WORK, ignore_errors=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with ottla.Cluster(3) as nodes, StandaloneSpark(WORK) as spark:
        print(f"brokers {nodes.bootstrap_servers}\nSpark   {spark.master}, two workers; logs in {WORK}")
        for name in names:
            pipeline, since = load(name), time.monotonic()
            size = options.size or pipeline.demo_size
            result, records = run_pipeline(pipeline, spark, nodes, WORK / name, size, kill=options.kill)
            print(f"\n{name}: {len(records):,} records, {time.monotonic() - since:.0f} s\n{pipeline.show(result)}")
            if result != pipeline.expected(records):
                raise SystemExit(f"{name}: the result differs from what plain Python computes from the same input")
            print("The result equals what plain Python computes from the same input.")
        if not names:
            example = f"--master {spark.master} --packages {packages(load('activity'))}"
            print(f"PYTHONPATH=. .venv/bin/spark-submit {example} \\\n    spark_it/pipelines/activity.py", end=" ")
            print(f"--bootstrap {nodes.bootstrap_servers} --folder DIR\nCtrl-C stops both clusters.")
            try:
                signal.pause()
            except KeyboardInterrupt:
                print("stopping")


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    main()
