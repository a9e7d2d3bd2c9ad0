"""Runner of a workload against one broker, with the outcome of each step."""

from __future__ import annotations

import time
from typing import Any

from compat_tests.workloads import direct_requests
from compat_tests.workloads.compared_broker import EARLIEST, LATEST, ComparedBroker
from compat_tests.workloads.driver_processes import JOB_GRACE_S, JobTimeout
from compat_tests.workloads.workload_generator import MIB, Workload, WorkloadStep

CONSUME_S = 60.0
"""Time of a consumer in seconds; one more is added for each `BYTES_A_SECOND`."""
BYTES_A_SECOND = 2 * MIB
PRODUCE_S = 240.0
IN_FLIGHT_PARTITIONS = 200
"""Number of partitions with offset requests in flight."""


class WorkloadRun:
    """Run of a workload against one broker."""

    def __init__(self, side: ComparedBroker, workload: Workload, stem: str, base_ms: int) -> None:
        """Create a run; ``stem`` begins the names of topics and groups; ``base_ms`` is the earliest timestamp."""
        self.side = side
        self.workload = workload
        self.base_ms = base_ms
        self.stem = stem
        self.deleted: set[int] = set()

    def topic(self, index: int) -> str:
        """Return the name of a topic."""
        return f"{self.stem}-{index}"

    def run(self) -> list[dict[str, Any]]:
        """Create the topics, run the steps and delete the topics."""
        topics = self.workload["topics"]
        for index, topic in enumerate(topics):
            error = self.side.create(self.topic(index), topic["partitions"], topic["configs"])
            if error:
                raise RuntimeError(f"{self.side.name}: topic {index} is not created (error {error}): {topic}")
        out = []
        try:
            for number, step in enumerate(self.workload["steps"]):
                out.append(self._step(number, step))
        finally:
            left = [self.topic(index) for index in range(len(topics)) if index not in self.deleted]
            self.side.delete_topics(left)
        return out

    def _step(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        began = time.monotonic()
        do = {
            "produce": self._produce,
            "finish": self._finish,
            "consume": self._consume,
            "restart": self._restart,
            "delete records": self._delete_records,
        }
        known = do.get(step["do"])
        outcome = {"answer": self._probe(step)} if known is None else known(number, step)
        return {**outcome, "took_s": round(time.monotonic() - began, 2)}

    def _probe(self, step: WorkloadStep) -> Any:
        topic = self.topic(step["topic"])
        if step["do"] == "list offsets":
            return direct_requests.list_offsets(self.side, topic, step, self.base_ms)
        if step["do"] == "batches":
            return direct_requests.produce_batches(self.side, topic, step, self.base_ms)
        if step["do"] == "frame":
            return direct_requests.produce_frame(self.side, topic, step, self.base_ms)
        ends = self._offsets(step["topic"], LATEST, 0)
        rows = [[x, ends[x] if at == "end" else at, limit] for x, at, limit in step["partitions"]]
        return direct_requests.fetch(self.side, topic, {**step, "partitions": rows})

    def _restart(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        self.side.restart(kill=step["kill"])
        for index, topic in enumerate(self.workload["topics"]):
            self.side.wait_until_led(self.topic(index), range(topic["partitions"]))
        return {}

    def _delete_records(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        ends = self._offsets(step["topic"], LATEST, 0)
        wanted = {partition: int(end * step["part"]) for partition, end in sorted(ends.items())[:50]}
        return {"answer": self.side.delete_records(self.topic(step["topic"]), wanted)}

    def _offsets(self, index: int, at: int, isolation: int) -> dict[int, int]:
        partitions, out = range(self.workload["topics"][index]["partitions"]), {}
        for first in range(0, len(partitions), IN_FLIGHT_PARTITIONS):
            requested = dict.fromkeys(partitions[first : first + IN_FLIGHT_PARTITIONS], at)
            for partition, row in self.side.offsets(self.topic(index), requested, isolation).items():
                out[partition] = row[2]
        return out

    def _job(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        return {
            "op": step["do"],
            "client": step["client"],
            "bootstrap": self.side.bootstrap,
            "client_id": f"{self.stem}-{number}-{self.side.name}",
        }

    def _call(self, step: WorkloadStep, job: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        driver = self.side.drivers[step["client"]]
        job_number = driver.start_job(job)
        if step.get("delete") is not None:
            try:
                driver.wait(job_number, timeout_s, event="end")
            except JobTimeout:
                return {"failure": "hung"}
            self.side.delete_topics([self.topic(step["delete"])])
            self.deleted.add(step["delete"])
        try:
            message = driver.wait(job_number, timeout_s)
        except JobTimeout:
            return {"failure": "hung"}
        return {"failure": message["failure"]} if "failure" in message else dict(message["result"])

    def _produce(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        handle = f"{self.stem}-{self.side.name}-{step['handle']}"
        job = {**self._job(number, step), "topic": self.topic(step["topic"]), "handle": handle}
        job |= {name: step[name] for name in ("seed", "text", "sync", "settings", "transaction")}
        if step["transaction"]:
            job["transaction"] = {**step["transaction"], "id": f"{self.stem}-{step['transaction']['id']}"}
        job["records"] = [[p, k, size, self.base_ms + at, headers] for p, k, size, at, headers in step["records"]]
        outcome = self._call(step, job, PRODUCE_S)
        if step["transaction"]:
            self.side.wait_until_transactions_end()
        return outcome

    def _finish(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        handle = f"{self.stem}-{self.side.name}-{step['handle']}"
        job = {**self._job(number, step), "handle": handle, "commit": step["commit"]}
        outcome = self._call(step, job, JOB_GRACE_S)
        self.side.wait_until_transactions_end()
        return outcome

    def _consume(self, number: int, step: WorkloadStep) -> dict[str, Any]:
        isolation = int(step["settings"].get("isolation.level") == "read_committed")
        ends, starts = {}, {}
        for index in step["topics"]:
            last = self._offsets(index, LATEST, isolation)
            first = self._offsets(index, EARLIEST, 0)
            for partition, end in last.items():
                name = f"{self.topic(index)}/{partition}"
                starts[name] = {"beginning": -1, "zero": 0, "middle": (first[partition] + end) // 2}[step["start"]]
                if first[partition] < end and starts[name] < end:
                    ends[name] = end
        timeout_s = step.get("timeout_s", CONSUME_S + self.workload["backlog"] / BYTES_A_SECOND)
        job = {
            **self._job(number, step),
            "topics": [self.topic(index) for index in step["topics"]],
            "group": None if step["group"] is None else f"{self.stem}-{step['group']}",
            "ends": ends,
            "start": starts,
            "timeout_s": timeout_s,
        }
        job |= {name: step[name] for name in ("settings", "members", "linger_s")}
        outcome = self._call(step, job, timeout_s + JOB_GRACE_S)
        if "rows" in outcome:
            stem = len(self.stem) + 1
            outcome["rows"] = {
                name[stem:]: [[row[0], row[1] - self.base_ms, *row[2:]] for row in rows]
                for name, rows in outcome["rows"].items()
            }
        outcome["requests"] = self.side.count_requests(job["client_id"])
        return outcome
