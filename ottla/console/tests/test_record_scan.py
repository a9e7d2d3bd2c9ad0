"""Scan of a topic: pauses, and batches of each codec."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.console.pages.batch import _describe_batch
from ottla.console.record_scan import RecordCriteria, RecordScan, ScanRange
from ottla.jobs.job import Job
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.legacy_records import iterate_any_batches
from ottla.wire.record_batch.records import NewRecord, build_batch

RANGE = ScanRange(0, 0, 1000)


def scan(raw: bytes, criteria: RecordCriteria | None = None) -> tuple[RecordScan, list[Any], int]:
    """Scan fetched batches; return the scan, its matches and the number of its steps."""
    unused: Any = None
    made = RecordScan(unused, unused, "topic", [RANGE], criteria or RecordCriteria())
    found: list[Any] = []
    job: Job[ScanRange] = made._scan(raw, RANGE, found, 1000)
    return made, found, sum(1 for _ in job)


def test_record_with_millions_of_headers_is_named_instead_of_decoded() -> None:
    raw = build_batch([NewRecord(None, b"", 0, (("", b""),) * 100_000)], codec=CompressionType.GZIP)
    assert len(raw) < 1000
    made, found, _ = scan(raw)
    assert found == []
    assert made.problems == ["Batch at offset 0 of partition 0: a record has 100000 headers; at most 5000 are read"]


def test_scan_pauses_after_each_record_whose_json_is_searched() -> None:
    value = json.dumps([[]] * 20_000).encode()
    raw = build_batch([NewRecord(None, value, 0, ())] * 19)
    _, found, steps = scan(raw, RecordCriteria(path=("7",)))
    assert (len(found), steps >= 19) == (19, True)


@pytest.mark.parametrize("codec", CompressionType)
def test_records_of_each_codec_are_found(codec: CompressionType) -> None:
    records = [NewRecord(b"key", bytes([number]) * 100_000, number, (("a", b"b"),)) for number in range(5)]
    made, found, _ = scan(build_batch(records, base_offset=7, codec=codec))
    assert made.problems == []
    assert [(each.record.offset, each.record.timestamp_ms) for each in found] == [(7 + n, n) for n in range(5)]
    assert [(r.record.key, r.record.value, r.record.headers) for r in found] == [
        (each.key, each.value, each.headers) for each in records
    ]


def test_scan_ends_with_the_batch_at_the_end_of_its_range() -> None:
    first, beyond = (build_batch([NewRecord(None, b"v", 0, ())] * 5, base_offset=offset) for offset in (995, 1000))
    made, found, _ = scan(first + beyond[:-1] + b"!")
    assert (len(found), made.problems) == (5, []), "the malformed batch is not read"


class LeaderChannel:
    """Channel to a leader that responds to each Fetch with one record, and records the limits of bytes."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    async def leader(self, topic: str, partition: int) -> LeaderChannel:
        return self

    def version_for(self, key: ApiKey, newest: int) -> int:
        return newest

    async def call(self, request: FetchRequest, version: int) -> FetchResponse:
        row = request.topics[0].partitions[0]
        self.limits.append(row.partition_max_bytes)
        raw = build_batch([NewRecord(None, b"v", 0, ())], base_offset=row.fetch_offset)
        part = PartitionData(0, log_start_offset=3, records=memoryview(raw))
        return FetchResponse(responses=[FetchableTopicResponse("topic", partitions=[part])])


def test_scan_fetches_twice_as_many_bytes_each_time_up_to_1_mib() -> None:
    channel: Any = LeaderChannel()
    env: Any = VirtualEnv()
    made = RecordScan(env, channel, "topic", [ScanRange(0, 10, 16)], RecordCriteria())
    assert len(run_virtual(partial(made.find, 100))) == 6
    assert [limit // 1024 for limit in channel.limits] == [64, 128, 256, 512, 1024, 1024]
    assert made.log_start_offsets == {0: 3}


COMPRESSED = [codec for codec in CompressionType if codec is not CompressionType.NONE]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_batch_is_scanned_in_steps(codec: CompressionType) -> None:
    raw = build_batch([NewRecord(None, bytes(4_000_000), 0, ())], codec=codec)
    assert scan(raw)[2] > 50


@pytest.mark.parametrize("codec", COMPRESSED)
def test_page_of_a_compressed_batch_is_made_in_steps(codec: CompressionType) -> None:
    raw = build_batch([NewRecord(b"key", bytes(4_000_000), 0, ())], codec=codec)
    ((_, header),) = iterate_any_batches(raw)
    job, steps = _describe_batch(memoryview(raw), header), 0
    while True:
        try:
            next(job)
        except StopIteration as end:
            _, plain = end.value
            break
        steps += 1
    assert (plain["problem"], plain["size"] > 4_000_000, steps > 50) == ("", True, True)
