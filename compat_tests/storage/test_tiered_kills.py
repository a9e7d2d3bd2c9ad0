"""Kills of a real node while it copies segments to the remote store and deletes them.

``OTTLA_TIERED_KILLS=20 pytest compat_tests/storage/test_tiered_kills.py`` for the long run (`make soak`).
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

from compat_tests.support.processes import CHECKED_OTTLA_COMMAND, OttlaProcess, free_port
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.client.record_decoding import decode_records
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import create_topics, delete_topics, fetch, list_offsets
from ottla.wire.record_batch.records import NewRecord, build_batch

KILLS = int(os.environ.get("OTTLA_TIERED_KILLS", "2"))
TOPIC = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "20000",
    "local.retention.bytes": "1",
    "retention.bytes": "400000",
    "retention.ms": "-1",
}
EARLIEST, EARLIEST_LOCAL = -2, -4


class KilledTieredNode:
    """Node that is killed again and again, with its store, and the records that it acknowledged."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.store = directory / "store"
        self.store.mkdir()
        self._directory = directory
        self._port = free_port()
        self._rng = random.Random(seed)
        self.acknowledged: dict[int, bytes] = {}

    def process(self) -> OttlaProcess:
        made = OttlaProcess(
            self._directory / "data",
            self._port,
            remote_log_storage_system_enable="true",
            rsm_config_url=f"file://{self.store}",
            remote_log_manager_task_interval_ms="20",
            log_retention_check_interval_ms="50",
            rlmm_config_remote_log_metadata_topic_num_partitions="1",
        )
        made.program = CHECKED_OTTLA_COMMAND
        return made

    def create(self) -> None:
        configs = [create_topics.CreatableTopicConfig(name, value) for name, value in TOPIC.items()]
        request = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", 1, 1, configs=configs)], 20_000)
        answer = RawClient(self._port).call(ApiKey.CREATE_TOPICS, 7, request)
        assert answer.topics[0].error_code == 0

    def write(self, client: RawClient) -> None:
        """Append a batch, until it is acknowledged."""
        value = b"%d:" % len(self.acknowledged) + bytes(self._rng.choice((10, 900, 3000)))
        raw = build_batch([NewRecord(None, value, time.time_ns() // 10**6)])
        wait_until(lambda: self._is_acknowledged(client, raw, value))

    def _is_acknowledged(self, client: RawClient, raw: bytes, value: bytes) -> bool:
        row = client.produce("t", 0, raw)
        if row.error_code == 0:
            self.acknowledged[row.base_offset] = value
        return row.error_code == 0

    def write_some(self) -> None:
        """Append a random number of batches: the node is killed after the last one."""
        client = RawClient(self._port)
        for _ in range(self._rng.randrange(20, 120)):
            self.write(client)

    def offset(self, which: int) -> int:
        wanted = [list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(0, -1, which)])]
        answer = RawClient(self._port).call(ApiKey.LIST_OFFSETS, 11, list_offsets.ListOffsetsRequest(topics=wanted))
        return int(answer.topics[0].partitions[0].offset)

    def read(self) -> dict[int, bytes]:
        """Return all records, from both tiers."""
        client, at, out = RawClient(self._port), self.offset(EARLIEST), dict[int, bytes]()
        while at <= max(self.acknowledged):
            part = fetch.FetchPartition(0, fetch_offset=at, partition_max_bytes=1 << 20)
            request = fetch.FetchRequest(max_wait_ms=500, topics=[fetch.FetchTopic("t", partitions=[part])])
            row = client.call(ApiKey.FETCH, 12, request).responses[0].partitions[0]
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:  # retention deleted the next records
                at = self.offset(EARLIEST)
                out.clear()
            if row.error_code or not row.records:
                continue  # the metadata is not loaded yet, or the read took too long
            out |= {x.offset: x.value or b"" for x in decode_records(row.records, at)}
            at = max(out) + 1
        return out

    def objects(self) -> list[Path]:
        return list(self.store.rglob("*.segment"))

    def delete(self) -> None:
        RawClient(self._port).call(ApiKey.DELETE_TOPICS, 4, delete_topics.DeleteTopicsRequest([], ["t"], 20_000))


def test_killed_node_loses_no_record_and_leaves_no_object(tmp_path: Path) -> None:
    node = KilledTieredNode(tmp_path, 1)
    for number in range(KILLS):
        process = node.process().start()
        if number == 0:
            node.create()
        node.write_some()
        process.kill()
    with node.process():
        node.write_some()
        wait_until(lambda: node.offset(EARLIEST_LOCAL) > max(node.acknowledged) // 2)
        found = node.read()
        lost = {at: value for at, value in node.acknowledged.items() if at >= min(found) and found.get(at) != value}
        assert not lost
        assert sorted(found) == list(range(min(found), max(found) + 1))
        assert node.objects()
        node.delete()
        wait_until(lambda: not node.objects())
