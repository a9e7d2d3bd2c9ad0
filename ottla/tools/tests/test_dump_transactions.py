"""Dump of records of `__transaction_state`."""

from __future__ import annotations

import random
from typing import Any

from ottla.broker.tests.transaction_coordinator_fixture import A, TransactionCoordinatorNode
from ottla.broker.transactions.coordinator import TOPIC
from ottla.env.disk import write_file
from ottla.env.memory_disk import MemoryDisk
from ottla.tools.dump import Row, dump_segment
from ottla.tools.segment_file_reader import SegmentFileReader
from ottla.wire.record_batch.records import NewRecord, build_batch


def records(raw: bytes) -> list[Row]:
    """Return the rows of the records of a segment of ``__transaction_state``."""
    disk = MemoryDisk(random.Random(1), lambda: 0).session()
    disk.makedirs("/d")
    write_file(disk, "/d/s.log", raw)
    with SegmentFileReader(disk, "/d/s.log") as segment:
        return [row for row in dump_segment(segment, TOPIC, deep=True) if row["kind"] == "record"]


def contents(raw: bytes) -> list[Any]:
    return [row["content"] for row in records(raw)]


def test_dump_transaction_records_contain_state_and_partitions() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.add(A, 1, 0)
    raw = b"".join(bytes(raw) for _, raw in node.replica.log.segments.batches(0))
    empty, ongoing = contents(raw)
    assert (empty["id"], empty["transaction"]["state"], empty["transaction"]["partitions"]) == ("x", "Empty", [])
    state = ongoing["transaction"]
    assert (state["state"], state["partitions"]) == ("Ongoing", ["t-0", "t-1"])
    assert (state["producer_id"], state["producer_epoch"]) == A
    assert "last_epoch" not in state


def test_dump_transaction_tombstone_unknown_and_damaged_record() -> None:
    gone = build_batch([NewRecord(b"\0\0\0\1x", None, 1)])
    assert contents(gone) == [{"id": "x", "transaction": None}]
    newer = build_batch([NewRecord(b"\0\5\0\1x", b"?", 1)])
    assert records(newer)[0].get("content") is None
    damaged = build_batch([NewRecord(b"\0\0\0\1x", b"\0\1", 1)])
    assert "unreadable" in contents(damaged)[0]
