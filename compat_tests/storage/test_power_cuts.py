"""Power cuts on a real file system: the image is copied under load, and a node is started on the copy.

With a sync before each acknowledgement no acknowledged record may be missing. ``OTTLA_POWER_CUTS=200 pytest
compat_tests/storage/test_power_cuts.py`` for the long run (`make soak`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from compat_tests.storage.ext4_image import Ext4Image, unavailable_reason
from compat_tests.support.processes import OttlaProcess
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.client.record_decoding import decode_records
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import create_topics, fetch
from ottla.wire.record_batch.records import NewRecord, build_batch

CUTS = int(os.environ.get("OTTLA_POWER_CUTS", "4"))
PARTITIONS = 3
SETTINGS = {"log_segment_bytes": "1048576"}
pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=unavailable_reason() or "")


class PowerCutWriter(threading.Thread):
    """Writer of numbered records, small and large ones, that records the acknowledgements."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._peer = RawClient(port)
        self._rng = random.Random(seed)
        self.acknowledged: list[tuple[int, int, bytes]] = []
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            partition = number % PARTITIONS
            value = b"%d:" % number + bytes(self._rng.choice((10, 300, 60_000)))
            raw = build_batch([NewRecord(b"k", value, time.time_ns() // 10**6)])
            try:
                row = self._peer.produce("t", partition, raw)
            except OSError:
                return  # the node was killed
            if row.error_code == 0:
                self.acknowledged.append((partition, row.base_offset, value))
            number += 1


def read_all(port: int) -> dict[tuple[int, int], bytes]:
    """Return every record after verifying its checksum."""
    peer = RawClient(port)
    out: dict[tuple[int, int], bytes] = {}
    for partition in range(PARTITIONS):
        at = 0
        # A restarted node serves unsynced records, and those behind them, once it has synced them.
        last = build_batch([NewRecord(b"k", b"last", time.time_ns() // 10**6)])
        wait_until(lambda partition=partition, last=last: not peer.produce("t", partition, last).error_code)  # type: ignore[misc]
        while True:
            part = fetch.FetchPartition(partition, fetch_offset=at, partition_max_bytes=8 << 20)
            topics = [fetch.FetchTopic("t", partitions=[part])]
            body = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=8 << 20, topics=topics)
            row = peer.call(ApiKey.FETCH, 12, body).responses[0].partitions[0]
            assert row.error_code == 0
            records = list(decode_records(row.records or b"", at))
            if not records:
                break
            out |= {(partition, x.offset): x.value or b"" for x in records}
            at = records[-1].offset + 1
    return out


def cut(tmp_path: Path, seed: int, *, synced: bool) -> tuple[int, int]:
    """Cut once; return the number of acknowledged records before it, and how many of them are missing."""
    rng = random.Random(seed)
    disk = Ext4Image(tmp_path, f"disk-{seed}", 96)
    copy: Ext4Image | None = None
    settings = {**SETTINGS, **({"log_flush_interval_messages": "1"} if synced else {})}
    try:
        with OttlaProcess(disk.path / "data", **settings) as node:
            body = create_topics.CreateTopicsRequest([create_topics.CreatableTopic("t", PARTITIONS, 1)], 60_000)
            assert RawClient(node.port).call(ApiKey.CREATE_TOPICS, 7, body).topics[0].error_code == 0
            writer = PowerCutWriter(node.port, seed)
            writer.start()
            wait_until(lambda: len(writer.acknowledged) > 10, 0.01)
            time.sleep(rng.random() * 0.8)
            os.kill(node.pid, signal.SIGSTOP)
            before = list(writer.acknowledged)
            copy = disk.copy_as_after_power_cut(tmp_path, f"copy-{seed}")
            writer.stop.set()
            os.kill(node.pid, signal.SIGCONT)
            node.kill()
            writer.join(120)
        with OttlaProcess(copy.path / "data", **settings) as again:
            found = read_all(again.port)
        lost = [x for x in before if found.get((x[0], x[1])) != x[2]]
        return len(before), len(lost)
    finally:
        for one in (disk, copy):
            if one is not None:
                one.remove()
                shutil.rmtree(one.under, ignore_errors=True)


def test_power_cut_with_sync_before_acknowledgement_loses_no_record(tmp_path: Path) -> None:
    acknowledged = 0
    for seed in range(CUTS):
        count, lost = cut(tmp_path, seed, synced=True)
        assert lost == 0, f"cut {seed}: {lost} of {count}"
        acknowledged += count
    assert acknowledged > CUTS * 10


def test_power_cut_without_sync_loses_records(tmp_path: Path) -> None:
    assert any(cut(tmp_path, seed, synced=False)[1] for seed in range(3))
