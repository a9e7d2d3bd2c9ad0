"""Files of Kafka and Ottla: Kafka's dump tool reads our files, and each node starts on the directory of the other."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess, java_tool
from compat_tests.support.raw_client import wait_until
from compat_tests.transactions.test_transactions import is_stable
from ottla.runtime.real_disk import RealDisk
from ottla.tools.dump import dump_file
from ottla.tools.file_verification import find_problems

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def patiently(work: Callable[[], Any]) -> Any:
    """Try again for a while: a Kafka that has just started is not leader and coordinator yet."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return work()
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def fill(bootstrap: str) -> None:
    """Create two topics with every codec, headers, and a group with offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [
        NewTopic("plain", 2, 1),
        NewTopic("packed", 1, 1, config={"cleanup.policy": "compact", "segment.ms": "7777777"}),
    ]
    for future in admin.create_topics(topics).values():
        future.result(120)
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for i in range(200):
            producer.produce("plain", b"v" * 60 + b"%d" % i, b"k%d" % i, i % 2, headers=[("codec", codec)])
            producer.produce("packed", b"p%d" % i, b"k%d" % (i % 9), 0)
        assert producer.flush(120) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    positions = [TopicPartition("plain", 0, 123), TopicPartition("plain", 1, 45)]
    patiently(lambda: consumer.commit(offsets=positions, asynchronous=False))
    consumer.close()


def contents(bootstrap: str) -> dict[str, Any]:
    """Return all that a client can read of what `fill` wrote."""
    out: dict[str, Any] = {}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "check.crcs": True, "enable.auto.commit": False}
    )
    for topic, partition in (("plain", 0), ("plain", 1), ("packed", 0)):
        at = TopicPartition(topic, partition, 0)
        deadline = time.monotonic() + 60
        low, high = patiently(lambda at=at: consumer.get_watermark_offsets(at, 30))
        while high == low and time.monotonic() < deadline:  # a Kafka that has just started may respond so once
            low, high = consumer.get_watermark_offsets(at, 30)
        consumer.assign([at])
        rows = []
        while len(rows) < high - low and time.monotonic() < deadline:
            m = consumer.poll(1)
            if m is not None and m.error() is None:
                rows.append((m.offset(), m.timestamp(), m.key(), m.value(), m.headers()))
        out[f"{topic}-{partition}"] = rows
    wanted = [TopicPartition("plain", 0), TopicPartition("plain", 1)]
    out["positions"] = [p.offset for p in patiently(lambda: consumer.committed(wanted, 30))]
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, "packed")
    found = admin.describe_configs([resource])[resource].result(120)
    out["configs"] = {name: found[name].value for name in ("cleanup.policy", "segment.ms", "max.message.bytes")}
    return out


def run_and_see(process: NodeProcess, *, fresh: bool) -> dict[str, Any]:
    with process:
        if fresh:
            fill(process.bootstrap)
        found = contents(process.bootstrap)
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = [p for p in sorted(process.data_dir.glob("*-*/*")) if p.suffix in suffixes]
    assert len(files) > 10
    assert [x for p in files for x in find_problems(RealDisk(), str(p))] == []
    return found


@pytest.mark.xdist_group(__name__)
def test_kafka_on_directory_of_ottla_and_ottla_again_read_the_same(data_dir: Path) -> None:
    first = run_and_see(OttlaProcess(data_dir), fresh=True)
    assert len(first["plain-0"]) == len(first["plain-1"]) == 500
    assert first["positions"] == [123, 45]
    assert run_and_see(KafkaProcess(data_dir), fresh=False) == first
    assert run_and_see(OttlaProcess(data_dir), fresh=False) == first


@pytest.mark.xdist_group(__name__)
def test_ottla_on_directory_of_kafka_and_kafka_again_read_the_same(data_dir: Path) -> None:
    first = run_and_see(KafkaProcess(data_dir), fresh=True)
    assert len(first["packed-0"]) == 1000
    assert run_and_see(OttlaProcess(data_dir), fresh=False) == first
    assert run_and_see(KafkaProcess(data_dir), fresh=False) == first


def transact(bootstrap: str) -> None:
    """Write a committed, an aborted and a committed transaction by a real transaction coordinator."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "tx"})
    patiently(lambda: producer.init_transactions(120))
    for name, commits in (("first", True), ("lost", False), ("second", True)):
        producer.begin_transaction()
        for i in range(20):
            producer.produce("txn", f"{name}-{i}".encode(), partition=0)
        producer.flush(120)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    wait_until(lambda: is_stable(bootstrap, "txn", 1))


def read_committed(bootstrap: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "x",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("txn", 0, 0)])
    out: list[bytes] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        m = consumer.poll(1)
        if m is not None and m.error() is None:
            out.append(m.value())
        elif m is not None and m.error().code() == KafkaError._PARTITION_EOF:
            break
    consumer.close()
    return out


@pytest.mark.xdist_group(__name__)
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_ottla_on_directory_of_kafka_hides_aborted_transactions(data_dir: Path, ending: str) -> None:
    with KafkaProcess(data_dir) as kafka:
        transact(kafka.bootstrap)
        seen = read_committed(kafka.bootstrap)
        if ending == "kill":
            kafka.kill()
    assert seen == [f"{name}-{i}".encode() for name in ("first", "second") for i in range(20)]
    with OttlaProcess(data_dir) as node:
        assert read_committed(node.bootstrap) == seen


_BATCH = re.compile(
    r"baseOffset: (-?\d+) lastOffset: (-?\d+) count: (\d+) baseSequence: (-?\d+) lastSequence: (-?\d+) "
    r"producerId: (-?\d+) producerEpoch: (-?\d+) partitionLeaderEpoch: (-?\d+) isTransactional: (\w+) "
    r"isControl: (\w+) .*?position: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) size: (\d+) magic: (\d+) "
    r"compresscodec: (\w+) crc: (\d+) isvalid: (\w+)"
)
_RECORD = re.compile(r"\| offset: (\d+) (?:CreateTime|LogAppendTime): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)")
_INDEX = re.compile(r"^(offset|timestamp): (-?\d+) (position|offset): (\d+)$", re.M)


def dumped_by_kafka(path: Path) -> list[tuple[str, ...]]:
    more = ["--cluster-metadata-decoder"] if path.parent.name.startswith("__cluster_metadata") else []
    text = java_tool("DumpLogSegments", "--files", str(path), "--deep-iteration", *more)
    for word in ("Exception", "Mismatches", "Error", "Found", "corrupt"):
        assert word not in text, text
    out: list[tuple[str, ...]] = []
    for line in text.split("\n"):
        if line.startswith("baseOffset"):
            match = _BATCH.match(line)
            assert match, line
            out.append(("batch", *match.groups()))
        elif line.startswith("| offset"):
            match = _RECORD.match(line)
            assert match, line
            out.append(("record", *match.groups()))
        elif match := _INDEX.match(line):
            out.append((match[1], match[2], match[4]))
    return out


def dumped_by_us(path: Path) -> list[tuple[str, ...]]:
    out: list[tuple[str, ...]] = []
    for row in dump_file(RealDisk(), str(path)):
        if row["kind"] == "batch":
            names = ("base_offset", "last_offset", "count", "base_sequence", "last_sequence", "producer_id")
            names += ("producer_epoch", "leader_epoch", "transactional", "control", "position", "max_timestamp")
            names += ("size", "magic", "codec", "crc", "valid")
            values = [str(row[n]).lower() if isinstance(row[n], bool) else str(row[n]) for n in names]
            out.append(("batch", *values))
        elif row["kind"] == "record":
            out.append(("record", *(str(row[n]) for n in ("offset", "timestamp", "key_size", "value_size"))))
        elif row["kind"] == "index":
            out.append(("offset", str(row["offset"]), str(row["position"])))
        elif row["kind"] == "timeindex":
            out.append(("timestamp", str(row["timestamp"]), str(row["offset"])))
    return out


def test_kafka_dump_log_tool_output_equals_ottla_dump(data_dir: Path) -> None:
    with OttlaProcess(data_dir) as node:
        fill(node.bootstrap)
    compared = 0
    for directory in sorted(data_dir.iterdir()):
        if not directory.is_dir():
            continue
        for path in sorted(directory.iterdir()):
            if path.suffix in (".log", ".checkpoint", ".index", ".timeindex") and path.stat().st_size:
                ours = dumped_by_us(path)
                assert ours, path
                assert dumped_by_kafka(path) == ours, path
                compared += 1
            elif path.suffix == ".snapshot" and path.stat().st_size > 10:
                text = java_tool("DumpLogSegments", "--files", str(path))
                assert f"producerId: {next(iter(dump_file(RealDisk(), str(path))))['producer_id']} " in text
                compared += 1
    assert compared >= 9
