"""Times for which the event loop of a node with 10,000 partitions is blocked, measured from inside.

``python -m bench.pauses [--topics 20] [--partitions 500]``. The node runs in a child process that times every step of
every task (a garbage collection in a step counts), and a pulse: a task that is scheduled each millisecond and records
its delay, with any cause. All are reset between two operations. ``held``: the longest step by the clock; ``computed``:
by processor time of its thread, which is independent of other load; ``late``: the longest delay of the pulse. With
``--arrays``: see `bench.array_pauses`.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench import array_pauses
from compat_tests.support.processes import free_port
from compat_tests.support.raw_client import RawClient
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.node import Node
from ottla.runtime.garbage_collection import freeze_garbage_collector
from ottla.runtime.real_env import RealEnv
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import find_coordinator, incremental_alter_configs, list_offsets, offset_commit, offset_fetch
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.record_batch import records

PROBE_INTERVAL_S = 0.001
GOAL_MS = 50
SNAPSHOT_EVERY_S = 30
POSITIONS_BYTES = 100_000_000
BATCHES = 20
MANY_ELEMENTS = 200_000
SETTINGS = {
    "log.retention.check.interval.ms": "3000",
    "metadata.log.max.snapshot.interval.ms": str(SNAPSHOT_EVERY_S * 1000),
    "offsets.topic.num.partitions": "1",
}


class LoopStepTimer(trio.abc.Instrument):
    """trio instrument that times every step of every task in s, and keeps the longest ones until `reset`."""

    def __init__(self) -> None:
        self.reset()
        self._began = time.perf_counter()  # installed in the middle of a step
        self._cpu = time.thread_time()

    def reset(self) -> None:
        """Set all measurements to 0."""
        self.held_s = self.computed_s = self.late_s = 0.0
        self.task_name = ""
        self.steps: dict[str, float] = {}

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Record the start of a task's step; called by trio."""
        self._began = time.perf_counter()
        self._cpu = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Update the longest steps, by the clock and by CPU time, with the step that ends; called by trio."""
        held, computed = time.perf_counter() - self._began, time.thread_time() - self._cpu
        self.held_s = max(self.held_s, held)
        if computed > self.steps.get(task.name, 0):
            self.steps[task.name] = computed
        if computed > self.computed_s:
            self.computed_s, self.task_name = computed, task.name

    async def pulse(self) -> None:
        """Sleep for a millisecond at a time until cancelled, and record the longest delay in `late_s`."""
        while True:
            due = time.perf_counter() + PROBE_INTERVAL_S
            await trio.sleep(PROBE_INTERVAL_S)
            self.late_s = max(self.late_s, time.perf_counter() - due)

    def report(self) -> dict[str, Any]:
        """Return the measurements since the last report in s, and reset them.

        ``held``, ``computed``, ``late``: see the module; ``who``: task with the longest step by CPU time.
        """
        out = {"held": self.held_s, "computed": self.computed_s, "late": self.late_s, "who": self.task_name}
        self.reset()
        return out


async def run_child(directory: str, port: int, metrics_port: int, own: dict[str, str]) -> None:
    """Run a node in this child process; answer each line on standard input with a JSON report, and stop on ``stop``.

    ``own``: further settings of the node. Prints ``ready`` once the node serves.
    """
    watch = LoopStepTimer()
    settings = {"ottla.metrics.listener": f"127.0.0.1:{metrics_port}", **SETTINGS, **own}
    node = Node(RealEnv(), NodeConfig(settings, directory, port=port), freeze_garbage_collector)
    stop = trio.Event()
    trio.lowlevel.add_instrument(watch)

    def ready(_: Node) -> None:
        gc.collect()
        print("ready", flush=True)

    async def answer() -> None:
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            print(json.dumps(watch.report()), flush=True)
            if line.startswith("stop"):
                stop.set()
                return  # a thread that reads cannot be cancelled

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.pulse)
        nursery.start_soon(answer)
        await node.run(ready, stop)
        nursery.cancel_scope.cancel()


class NodeChildProcess:
    """Node under measurement in a child process, which is started and ready after construction."""

    def __init__(self, directory: Path, port: int | None = None, settings: dict[str, str] | None = None) -> None:
        self.port, self.metrics_port = port or free_port(), free_port()
        self.controller_port = -1
        """Port of the controller listener; -1 if the node has none, or it is not known."""
        ports = [str(self.port), str(self.metrics_port)]
        arguments = ["--inside", str(directory), *ports, json.dumps(settings or {})]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.pauses", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    @property
    def pid(self) -> int:
        """Process id of the node."""
        return self._process.pid

    def query(self, command: str = "report") -> dict[str, Any]:
        """Send a command to the child; return the measurements since the last query in s, which are reset."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def stop(self) -> float:
        """Stop the node cleanly, wait for the end of its process, and return the duration in s."""
        began = time.perf_counter()
        self.query("stop")
        self._process.wait(600)
        return time.perf_counter() - began

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()


class PauseScenarios:
    """Operations on the node whose pauses are measured; each returns when it is complete."""

    def __init__(self, child: NodeChildProcess, topics: int, partitions: int, where: Path) -> None:
        self._child = child
        self._where = where
        self._admin = AdminClient(
            {"bootstrap.servers": f"127.0.0.1:{child.port}", "socket.timeout.ms": 300_000, "log_level": 0}
        )
        self._topics = topics
        self._partitions = partitions
        self._peer = RawClient(child.port, timeout_s=300)

    def _make(self, name: str, partitions: int, **config: str) -> None:
        wanted = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
        done = self._admin.create_topics([wanted], request_timeout=300, operation_timeout=300)
        done[name].result(300)
        for first in range(0, partitions, 100):
            rows = [
                list_offsets.ListOffsetsPartition(n, timestamp=-1) for n in range(first, min(first + 100, partitions))
            ]
            request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsTopic(name, rows)])
            while any(x.error_code for x in self._peer.call(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions):
                time.sleep(0.1)

    def fill(self) -> None:
        """Create the topics ``t0``, ``t1`` and so on, and wait until all partitions have leaders."""
        for number in range(self._topics):
            self._make(f"t{number}", self._partitions)

    def partitions_made(self) -> None:
        """Create the topic ``more`` with 1,000 partitions, and wait until all have leaders."""
        self._make("more", 1000)

    def _set(self, kind: ResourceType, name: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for done in self._admin.incremental_alter_configs(
            [ConfigResource(kind, name, incremental_configs=[entry])]
        ).values():
            done.result(60)

    def topic_setting(self, days: int = 1) -> None:
        """Set ``retention.ms`` of the topic ``more``."""
        self._set(ResourceType.TOPIC, "more", "retention.ms", str(days * 86_400_000))

    def broker_setting(self, days: int = 2) -> None:
        """Set ``log.retention.ms`` of the broker, which all topics without an own value use."""
        self._set(ResourceType.BROKER, "1", "log.retention.ms", str(days * 86_400_000))

    def metadata(self) -> None:
        """Request the metadata of all topics, ten times."""
        for _ in range(10):
            self._peer.call(ApiKey.METADATA, 12, MetadataRequest(None, allow_auto_topic_creation=False))

    def scrape(self) -> None:
        """Request the metrics page three times."""
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{self._child.metrics_port}/metrics", timeout=60) as page:
                assert page.read().count(b"kafka_log_log_size{") >= self._topics * self._partitions

    def snapshot(self) -> None:
        """Change settings until the metadata log has another snapshot."""
        place = self._where / "__cluster_metadata-0"
        before = set(place.glob("*.checkpoint"))
        number = 0
        while set(place.glob("*.checkpoint")) <= before:
            number += 1
            self._set(ResourceType.TOPIC, "t0", "retention.ms", str(86_400_000 + number))
            time.sleep(0.5)

    def _produce(self, topic: str, **config: str) -> None:
        self._make(topic, 1, **config)
        raw = records.build_batch(
            [records.NewRecord(b"k%d" % n, b"%0100d" % n, int(time.time() * 1000)) for n in range(8000)]
        )
        for _ in range(BATCHES):
            row = self._peer.produce(topic, 0, raw)
            assert row.error_code == 0, row

    def recompression(self) -> None:
        """Create a topic with compression.type zstd, and produce 20 uncompressed batches of 0.9 MB to it."""
        self._produce("recompressed", compression_type="zstd")

    def validation(self) -> None:
        """Produce batches of a megabyte with validation of each record."""
        self._produce("validated", ottla_validate_records="true")

    def positions(self) -> None:
        """Commit offsets, one of each partition per request, until the partition of `__consumer_offsets` has 100 MB."""
        self._peer.call(ApiKey.FIND_COORDINATOR, 3, find_coordinator.FindCoordinatorRequest("load-0"))
        numbers = range(self._partitions)
        topics = [
            offset_commit.OffsetCommitRequestTopic(
                f"t{n}", partitions=[offset_commit.OffsetCommitRequestPartition(p, 5, -1, "m" * 16) for p in numbers]
            )
            for n in range(self._topics)
        ]
        number = 0
        while sum(x.stat().st_size for x in (self._where / "__consumer_offsets-0").glob("*.log")) < POSITIONS_BYTES:
            request = offset_commit.OffsetCommitRequest(f"load-{number}", topics=topics)
            answer = self._peer.call(ApiKey.OFFSET_COMMIT, 8, request)
            number += answer.topics[0].partitions[0].error_code == 0

    def loaded(self) -> None:
        """Wait, without a time limit, until a restarted node has loaded the committed offsets again."""
        request = offset_fetch.OffsetFetchRequest("load-0", [offset_fetch.OffsetFetchRequestTopic("t0", [0])])
        while (answer := self._peer.call(ApiKey.OFFSET_FETCH, 7, request)).error_code:
            assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            time.sleep(0.05)
        assert answer.topics[0].partitions[0].committed_offset == 5

    def hostile(self) -> None:
        """Send requests with many small items: settings of unknown topics, uncommitted offsets."""
        resources = [incremental_alter_configs.AlterConfigsResource(2, f"none-{n}") for n in range(MANY_ELEMENTS)]
        self._peer.call(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            incremental_alter_configs.IncrementalAlterConfigsRequest(resources, True),
        )
        request = offset_fetch.OffsetFetchRequest(
            "load-0", [offset_fetch.OffsetFetchRequestTopic("t0", list(range(MANY_ELEMENTS)))]
        )
        self._peer.call(ApiKey.OFFSET_FETCH, 7, request)

    def at_rest(self) -> None:
        """Wait 8 s, in which retention checks and checkpoints run."""
        time.sleep(8)

    def deletion(self) -> None:
        """Delete the topic with 1,000 partitions, and wait 2 s."""
        self._admin.delete_topics(["more"])["more"].result(60)
        time.sleep(2)


def measure(topics: int, partitions: int, where: Path) -> None:
    """Run all operations on a new node with its data in ``where``, restart it, and print the pauses of each."""
    began = time.perf_counter()
    child = NodeChildProcess(where)
    print(f"start: {time.perf_counter() - began:.2f} s", flush=True)
    try:
        scenes = PauseScenarios(child, topics, partitions, where)
        rows: list[tuple[str, Callable[[], None]]] = [
            (f"{topics * partitions} partitions made", scenes.fill),
            ("at rest", scenes.at_rest),
            ("1,000 partitions made", scenes.partitions_made),
            ("a first setting, with its code", scenes.topic_setting),
            ("a topic's setting changed", lambda: scenes.topic_setting(3)),
            ("a broker's setting changed", scenes.broker_setting),
            ("a broker's setting again", lambda: scenes.broker_setting(4)),
            ("metadata of everything", scenes.metadata),
            ("scrape", scenes.scrape),
            ("1,000 partitions deleted", scenes.deletion),
            ("snapshot of the metadata", scenes.snapshot),
            ("recompression", scenes.recompression),
            ("validation", scenes.validation),
            ("100 MB of positions committed", scenes.positions),
            ("hostile requests", scenes.hostile),
        ]
        print(f"{'milliseconds':32} {'held':>8} {'computed':>8} {'late':>8}  took  by")
        for name, scene in rows:
            child.query()
            measure_pause(child, name, scene)
        print(f"clean stop: {child.stop():.1f} s", flush=True)
        began = time.perf_counter()
        child = NodeChildProcess(where)
        print(f"start with all of them: {time.perf_counter() - began:.1f} s", flush=True)
        child.query()
        measure_pause(child, "100 MB of positions loaded", PauseScenarios(child, topics, partitions, where).loaded)
        child.stop()
    finally:
        child.kill()


def measure_pause(child: NodeChildProcess, name: str, scene: Callable[[], None]) -> None:
    """Run the operation ``scene`` on the node; print a line with its duration and the pauses since the last query."""
    began = time.perf_counter()
    scene()
    took = time.perf_counter() - began
    seen = child.query()
    numbers = " ".join(f"{seen[x] * 1000:8.1f}" for x in ("held", "computed", "late"))
    print(f"{name:32} {numbers} {took:5.1f}  {seen['who']}", flush=True)


def main() -> None:
    """Run the benchmark, with ``--arrays`` that of `array_pauses`; as ``--inside`` run the child process."""
    if sys.argv[1:2] == ["--inside"]:
        trio.run(run_child, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), json.loads(sys.argv[5]))
        return
    parser = argparse.ArgumentParser("bench.pauses")
    parser.add_argument("--topics", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=500)
    parser.add_argument("--arrays", action="store_true", help="requests with very long arrays instead")
    parser.add_argument("--elements", type=int, default=array_pauses.ELEMENTS, help="of a long array")
    parser.add_argument("--kind", choices=array_pauses.KINDS, action="append", help="of its elements")
    parser.add_argument("names", nargs="*", metavar="NAME", help="with --arrays: beginning of an API's name")
    options = parser.parse_args()
    if options.arrays:
        array_pauses.measure_arrays(
            NodeChildProcess, options.elements, options.names, options.kind or array_pauses.KINDS
        )
        return
    with tempfile.TemporaryDirectory() as where:
        measure(options.topics, options.partitions, Path(where) / "data")


if __name__ == "__main__":
    main()
