"""Broker of a comparison: its process, the proxy in front of it, and direct requests."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient
from compat_tests.workloads.driver_processes import Driver
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, list_offsets, list_transactions
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

SETTINGS = {
    "auto_create_topics_enable": "false",
    "offsets_topic_num_partitions": "5",
    "transaction_state_log_num_partitions": "5",
    "offsets_topic_replication_factor": "1",
    "transaction_state_log_replication_factor": "1",
    "transaction_state_log_min_isr": "1",
    "group_initial_rebalance_delay_ms": "0",
    "log_segment_delete_delay_ms": "200",
    "log_cleaner_backoff_ms": "1000",
}
"""Settings of both brokers. Deleted files are removed soon, or 200 seeds would fill the disk."""
EARLIEST, LATEST = -2, -1
WITHIN_S = 180.0


class _Kafka(KafkaProcess):
    def command(self) -> list[str]:
        """Return the command line, with the heap that messages of 20 MB need."""
        return [x.replace("-Xmx512m", "-Xmx1g") for x in super().command()]


class _Ottla(OttlaProcess):
    plant = ""

    def command(self) -> list[str]:
        """Return the command line; with a fault of `compat_tests.workloads.seeded_faults` in a test of detection."""
        out = super().command()
        return (
            [sys.executable, "-m", "compat_tests.workloads.seeded_faults", self.plant, *out[1:]] if self.plant else out
        )


class ComparedBroker:
    """A broker of one kind that runs through all seeds."""

    def __init__(self, name: str, folder: Path, go: Driver, python: Driver, java: Driver, plant: str = "") -> None:
        """Create the broker; ``name``: ottla or kafka; ``plant``: a fault that is planted in Ottla."""
        self.name = name
        self.drivers = {"java": java, "franz-go": go}
        self.drivers |= dict.fromkeys(("confluent", "kafka-python", "aiokafka"), python)
        self._go = go
        port = free_port()
        self.proxy: int = go.call({"op": "proxy", "target": f"127.0.0.1:{port}"})["result"]
        self.bootstrap = f"127.0.0.1:{self.proxy}"
        settings = {**SETTINGS, "advertised_listeners": f"PLAINTEXT://{self.bootstrap}"}
        made = _Ottla if name == "ottla" else _Kafka
        self.process: NodeProcess = made(folder / name, port, **settings)
        if isinstance(self.process, _Ottla):
            self.process.plant = plant
        self.folder = folder / name
        self._raw: RawClient | None = None
        self.topic_ids: dict[str, bytes] = {}

    def start(self) -> None:
        """Start the broker."""
        self.close_connection()
        self.process.start()

    def stop(self) -> None:
        """Stop the broker and delete its data."""
        self.close_connection()
        self.process.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, *, kill: bool) -> None:
        """Stop or kill the broker and start it again on its data."""
        self.close_connection()
        if kill:
            self.process.kill()
        else:
            self.process.stop()
        self.process.start()

    def exit_report(self) -> str:
        """Return the exit status and the end of the log of a broker that ended by itself; empty while it runs."""
        status = self.process.status()
        return "" if status is None else f"ended with status {status}: {self.process.log.read_text()[-1000:]}"

    def close_connection(self) -> None:
        """Close the direct connection."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None

    def call(self, key: ApiKey, version: int, body: Any) -> Any:
        """Send a request to the broker, not through the proxy."""
        if self._raw is None:
            self._raw = RawClient(self.process.port, 60.0)
        try:
            return self._raw.call(key, version, body)
        except OSError:
            self.close_connection()
            raise

    def count_requests(self, prefix: str) -> dict[str, int]:
        """Return the requests of clients with an id that begins with ``prefix``, by API key."""
        out: dict[str, int] = self._go.call({"op": "counts", "port": self.proxy, "prefix": prefix})["result"]
        return out

    def create(self, name: str, partitions: int, configs: dict[str, str]) -> int:
        """Create a topic, wait until all its partitions have a leader, and return the error code."""
        rows = [create_topics.CreatableTopicConfig(key, value) for key, value in configs.items()]
        topic = create_topics.CreatableTopic(name, partitions, 1, [], rows)
        answer = self.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest([topic], 30_000)).topics[0]
        if answer.error_code == 0:
            self.topic_ids[name] = answer.topic_id
            self.wait_until_led(name, range(partitions))
        return int(answer.error_code)

    def wait_until_led(self, topic: str, partitions: Iterable[int]) -> None:
        """Wait until the broker leads all partitions.

        Raises:
            TimeoutError: A partition has no leader.
        """
        wanted, deadline = list(partitions), time.monotonic() + WITHIN_S
        while any(row[0] for row in self.offsets(topic, dict.fromkeys(wanted, LATEST)).values()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not lead {topic}")
            time.sleep(0.05)

    def wait_until_transactions_end(self) -> None:
        """Wait until no transaction waits for its markers: a broker answers EndTxn before they are written.

        Raises:
            TimeoutError: A transaction still waits.
        """
        request, deadline = (
            list_transactions.ListTransactionsRequest(["PrepareCommit", "PrepareAbort"]),
            time.monotonic() + WITHIN_S,
        )
        while self.call(ApiKey.LIST_TRANSACTIONS, 0, request).transaction_states:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} does not write markers")
            time.sleep(0.05)

    def offsets(
        self, topic: str, times: dict[int, int], isolation: int = 0, version: int = 7
    ) -> dict[int, tuple[int, int, int, int]]:
        """Send ListOffsets for one timestamp a partition; return (error, timestamp, offset, leader epoch)."""
        rows = [list_offsets.ListOffsetsPartition(partition, -1, at) for partition, at in times.items()]
        request = list_offsets.ListOffsetsRequest(-1, isolation, [list_offsets.ListOffsetsTopic(topic, rows)], 10_000)
        answer = self.call(ApiKey.LIST_OFFSETS, version, request)
        return {
            row.partition_index: (row.error_code, row.timestamp, row.offset, row.leader_epoch)
            for row in answer.topics[0].partitions
        }

    def delete_records(self, topic: str, offsets: dict[int, int]) -> list[tuple[int, int, int]]:
        """Delete records below offsets; return (partition, error code, low watermark)."""
        rows = [DeleteRecordsPartition(partition, offset) for partition, offset in offsets.items()]
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic, rows)], 30_000)
        answer = self.call(ApiKey.DELETE_RECORDS, 2, request)
        return sorted((x.partition_index, x.error_code, x.low_watermark) for x in answer.topics[0].partitions)

    def delete_topics(self, names: list[str]) -> list[int]:
        """Delete topics; return their error codes."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name) for name in names], timeout_ms=30_000)
        answer = self.call(ApiKey.DELETE_TOPICS, 6, request)
        return [x.error_code for x in answer.responses]
