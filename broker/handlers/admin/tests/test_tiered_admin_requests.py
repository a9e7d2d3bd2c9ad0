"""DeleteRecords and DescribeLogDirs of a partition with remote segments. Source: ``Partition.deleteRecordsOnLeader``,
``UnifiedLog.maybeIncrementLogStartOffset``, ``ReplicaManager.describeLogDirs`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.admin import delete_records, describe_log_dirs
from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import request, rows_of
from ottla.broker.storage.tiered.tests.remote_reads_fixture import TieredFixture
from ottla.broker.tests.handler_fixture import as_decoded
from ottla.log.partition_log import PartitionLog
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest


class LogDirectories:
    """Log directories of a node: one, which has all logs of the fixture."""

    def __init__(self, fixture: TieredFixture) -> None:
        self._logs = {at: replica.log for at, replica in fixture.hosted.replicas.items()}
        self.path = self.full_path = "/data"
        self.logs = self._logs
        self.disk = SimpleNamespace(usage=lambda path: (1000, 500))
        self.checkpoints = SimpleNamespace(write_log_start_offsets=self._write)
        self.directories = [self]
        self.offline: dict[str, Any] = {}
        self.written: dict[str, int] = {}

    def directory_of(self, log: PartitionLog) -> LogDirectories:
        return self

    def is_cordoned(self, directory: LogDirectories) -> bool:
        return False

    def _write(self, logs: list[PartitionLog]) -> None:
        self.written.update({log.label: log.log_start_offset for log in logs})


@pytest.fixture
def fixture() -> TieredFixture:
    """Return a node with tiered topic t: offsets 0-149, local from 66 on, copied up to 125."""
    out = TieredFixture()
    out.host()
    out.append_batches(50)
    assert out.tier(local_start=66).segments.base_offsets == [66, 99, 126]
    out.services.log_dirs = LogDirectories(out)
    return out


def delete(fixture: TieredFixture, offset: int) -> tuple[int, int]:
    """Return error code and low watermark."""
    wanted = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])], 100)
    answer, _ = fixture.send(delete_records.handle, ApiKey.DELETE_RECORDS, 2, wanted)
    (row,) = as_decoded(answer, 2).topics[0].partitions
    return row.error_code, row.low_watermark


def fetch_error(fixture: TieredFixture, offset: int) -> int:
    answer, _ = fixture.send(fetch.handle, ApiKey.FETCH, 18, request(("t", 0, offset)))
    (row,) = rows_of(answer)
    assert row.error_code or row.records
    return row.error_code


@pytest.mark.parametrize(
    ("offset", "low", "local", "bases"),
    [
        pytest.param(40, 40, 66, [66, 99, 126], id="below the local log start offset"),
        pytest.param(66, 66, 66, [66, 99, 126], id="at the local log start offset"),
        pytest.param(70, 70, 70, [66, 99, 126], id="within the first local segment"),
        pytest.param(110, 110, 110, [99, 126], id="above the local log start offset"),
        pytest.param(-1, 150, 150, [126], id="high watermark, beyond what was copied"),
    ],
)
def test_delete_records_in_either_tier_advances_the_log_start_offset(
    fixture: TieredFixture, offset: int, low: int, local: int, bases: list[int]
) -> None:
    assert delete(fixture, offset) == (0, low)
    log = fixture.log()
    assert (log.log_start_offset, log.local_log_start_offset, log.segments.base_offsets) == (low, local, bases)
    assert fixture.services.log_dirs.written == {"t-0": low}
    assert fetch_error(fixture, low - 1) == ErrorCode.OFFSET_OUT_OF_RANGE
    assert low == 150 or fetch_error(fixture, low) == 0


def test_delete_records_above_the_high_watermark_changes_nothing(fixture: TieredFixture) -> None:
    assert delete(fixture, 151) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(fixture, 40) == (0, 40)
    assert delete(fixture, 30) == (0, 40)
    assert fixture.log().log_start_offset == 40


def test_describe_log_dirs_counts_local_segments_only(fixture: TieredFixture) -> None:
    answer, _ = fixture.send(describe_log_dirs.handle, ApiKey.DESCRIBE_LOG_DIRS, 5, DescribeLogDirsRequest(None))
    sizes = {topic.name: topic.partitions[0] for topic in as_decoded(answer, 5).results[0].topics}
    local = sum(segment.size_bytes for segment in fixture.log().segments)
    assert (sizes["t"].partition_size, sizes["t"].offset_lag, sizes["t"].is_future_key) == (local, 0, False)
    assert sizes["t-untiered"].partition_size > local + 3000
