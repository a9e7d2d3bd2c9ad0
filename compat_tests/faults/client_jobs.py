"""Jobs of the five stock clients against one node with faults; the clients of a test run at the same time."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

import ottla
from compat_tests.workloads.driver_processes import Driver, driver_commands

CLIENTS = {"java": "java", "confluent": "python", "kafka-python": "python", "aiokafka": "python", "franz-go": "go"}
"""The clients, and the driver of each."""
TIMEOUT_S = 600.0
RECORDS = 10
SETTINGS = {
    "ottla.faults": True,
    "num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
}


class FaultStage:
    """A node with faults, and the drivers of the clients."""

    def __init__(self, log: Path) -> None:
        commands = driver_commands()
        self.drivers = {name: Driver(command, log) for name, command in commands.items()}
        self.broker = ottla.Broker(settings=SETTINGS).start()

    def __enter__(self) -> FaultStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for driver in self.drivers.values():
            driver.close()
        self.broker.stop()


class ClientRun:
    """Jobs of one client in one test, with a topic and a client id of their own."""

    def __init__(self, stage: FaultStage, client: str, name: str) -> None:
        self.client = client
        self.topic = self.client_id = f"{name}-{client}"
        self.broker = stage.broker
        self._driver = stage.drivers[CLIENTS[client]]
        self._job: dict[str, Any] = {
            "client": client,
            "bootstrap": stage.broker.bootstrap_servers,
            "client_id": self.client_id,
            "settings": {},
        }
        stage.broker.client.create_topic(self.topic, 1)

    def start_produce(
        self,
        settings: dict[str, str] | None = None,
        *,
        sync: bool = True,
        transaction: dict[str, Any] | None = None,
        client_id: str | None = None,
    ) -> int:
        """Start to produce ``RECORDS`` records, one after the other; return the number of the job."""
        now_ms = time.time_ns() // 10**6
        job = {"op": "produce", "topic": self.topic, "seed": 1, "text": True, "sync": sync, "handle": self.topic}
        rows = [[0, f"k{i}", 10, now_ms, 0] for i in range(RECORDS)]
        named = self.client_id if client_id is None else client_id
        own = {"records": rows, "settings": settings or {}, "transaction": transaction, "client_id": named}
        return self._driver.start_job({**self._job, **job, **own})

    def start_finish(self) -> int:
        """Start to commit the transaction that was left open."""
        return self._driver.start_job({**self._job, "op": "finish", "handle": self.topic, "commit": True})

    def start_consume(
        self, settings: dict[str, str] | None = None, *, count: int = RECORDS, group: str | None = None
    ) -> int:
        """Start to read ``count`` records from the beginning."""
        own: dict[str, Any] = {"op": "consume", "topics": [self.topic], "group": group, "members": 1, "linger_s": 0}
        own |= {"ends": {f"{self.topic}/0": count}, "start": {f"{self.topic}/0": -1}, "timeout_s": TIMEOUT_S}
        own["idle_s"] = TIMEOUT_S  # a fault may keep records back for as long
        return self._driver.start_job({**self._job, **own, "settings": settings or {}})

    def wait(self, number: int) -> dict[str, Any]:
        """Return the result of a job, or its failure."""
        message = self._driver.wait(number, TIMEOUT_S)
        return dict(message["result"]) if "result" in message else {"failure": message["failure"]}

    def offsets(self, result: dict[str, Any]) -> list[int]:
        """Return the offsets that a consume job has read."""
        return [row[0] for row in result["rows"].get(f"{self.topic}/0", [])]

    def stored_keys(self) -> list[bytes | None]:
        """Return the keys of the records of the topic."""
        return [record.key for record in self.broker.records(self.topic)]
