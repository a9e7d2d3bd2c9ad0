"""ListOffsets: upper bounds of the result, and its leader epoch. Source: ``Partition.fetchOffsetForTimestamp`` and
``ReplicaManager.fetchOffset`` (4.3.1).
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.admin import delete_records
from ottla.broker.handlers.offsets import list_offsets
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, as_decoded, resolve, run_virtual
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import UNVERIFIED_TXN
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.records import NewRecord, build_batch

NOTHING = (ErrorCode.NONE, -1, -1, -1)
DEBUGGING = -2


def append(log: PartitionLog, leader_epoch: int, *times: int, **fields: Any) -> None:
    """Append a batch of records with these timestamps."""
    raw = bytearray(build_batch([NewRecord(None, b"v", NOW_MS + t) for t in times], **fields))
    log.append_as_leader(raw, leader_epoch, NOW_MS, AppendOrigin.COORDINATOR, txn=UNVERIFIED_TXN)


IN_TRANSACTION = {"attributes": TRANSACTIONAL_BIT, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def ask(
    fixture: HandlerFixture, timestamp: int, *, replica: int = -1, isolation: int = 0, epoch: int = -1
) -> tuple[int, ...]:
    """Return (error code, offset, timestamp, leader epoch) for t-0."""
    wanted = ListOffsetsTopic("t", [ListOffsetsPartition(0, epoch, timestamp)])
    request = ListOffsetsRequest(replica, isolation, [wanted])

    async def main() -> Any:
        return await resolve(list_offsets.handle(fixture.context(ApiKey.LIST_OFFSETS, 11), request))

    (row,) = as_decoded(run_virtual(main), 11).topics[0].partitions
    time = row.timestamp if row.timestamp < 0 else row.timestamp - NOW_MS
    return row.error_code, row.offset, time, row.leader_epoch


@pytest.fixture
def fixture() -> HandlerFixture:
    """Create offsets 0-1 committed, 2 in an open transaction, 3-4 above the high watermark; timestamps ascend."""
    out = HandlerFixture()
    replica = out.hosted.host("t", isr=(1, 2), replicas=(1, 2))
    append(replica.log, 3, 10, 20)
    append(replica.log, 3, 30, **IN_TRANSACTION)
    append(replica.log, 4, 40, 50)
    replica.log.set_high_watermark(3)
    assert (replica.log.last_stable_offset, replica.log.high_watermark, replica.log.log_end_offset) == (2, 3, 5)
    return out


FOUND = [
    # timestamp -> uncommitted, committed, replica
    pytest.param(-1, (ErrorCode.NONE, 3, -1, 3), (ErrorCode.NONE, 2, -1, 3), (ErrorCode.NONE, 5, -1, 3), id="latest"),
    pytest.param(-2, (ErrorCode.NONE, 0, -1, 3), (ErrorCode.NONE, 0, -1, 3), (ErrorCode.NONE, 0, -1, 3), id="earliest"),
    pytest.param(-3, NOTHING, NOTHING, (ErrorCode.NONE, 4, 50, 4), id="max timestamp"),
    pytest.param(
        NOW_MS + 11, (ErrorCode.NONE, 1, 20, 3), (ErrorCode.NONE, 1, 20, 3), (ErrorCode.NONE, 1, 20, 3), id="below both"
    ),
    pytest.param(
        NOW_MS + 21, (ErrorCode.NONE, 2, 30, 3), NOTHING, (ErrorCode.NONE, 2, 30, 3), id="above the last stable offset"
    ),
    pytest.param(NOW_MS + 31, NOTHING, NOTHING, (ErrorCode.NONE, 3, 40, 4), id="above the high watermark"),
    pytest.param(NOW_MS + 51, NOTHING, NOTHING, NOTHING, id="none"),
]


@pytest.mark.parametrize(("timestamp", "uncommitted", "committed", "replica"), FOUND)
def test_list_offsets_returns_no_offset_above_last_fetchable(
    fixture: HandlerFixture,
    timestamp: int,
    uncommitted: tuple[int, ...],
    committed: tuple[int, ...],
    replica: tuple[int, ...],
) -> None:
    assert ask(fixture, timestamp) == uncommitted
    assert ask(fixture, timestamp, isolation=1) == committed
    for number in (0, 2, DEBUGGING, -3):
        assert ask(fixture, timestamp, replica=number, isolation=1) == replica


def test_list_offsets_max_timestamp_below_last_stable_offset() -> None:
    fixture = HandlerFixture()
    log = fixture.hosted.host("t").log
    append(log, 3, 90, 90)
    append(log, 3, 30, **IN_TRANSACTION)
    log.set_high_watermark(3)
    for isolation in (0, 1):
        assert ask(fixture, -3, isolation=isolation) == (ErrorCode.NONE, 0, 90, 3)


def test_list_offsets_returns_leader_epoch_of_batch(fixture: HandlerFixture) -> None:
    log = fixture.hosted.replicas["t", 0].log
    log.set_high_watermark(5)
    log.maybe_increment_log_start_offset(4)
    assert ask(fixture, -3) == (ErrorCode.NONE, 4, 50, 4)
    log.maybe_increment_log_start_offset(5)
    assert ask(fixture, -3) == (ErrorCode.NONE, 4, 50, 4), "also below the log start"
    assert ask(fixture, NOW_MS) == NOTHING


def test_list_offsets_at_follower_is_refused_except_for_debugging() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t", leader=2, isr=(1, 2), replicas=(1, 2))
    append(replica.log, 3, 10, 20)
    for number in (-1, 0, 2):
        assert ask(fixture, -1, replica=number)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(fixture, -1, replica=DEBUGGING) == (ErrorCode.NONE, 2, -1, 3)
    assert ask(fixture, -1, replica=DEBUGGING, epoch=2)[0] == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("compact", "delete", "topic", "partition", "code"),
    [
        (True, False, "t", 0, ErrorCode.POLICY_VIOLATION),
        (True, True, "t", 0, ErrorCode.NONE),
        (False, True, "t", 0, ErrorCode.NONE),
        (False, False, "t", 0, ErrorCode.NONE),  # an empty cleanup.policy
        (False, True, "__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        (False, True, "__consumer_offsets", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (False, True, "__share_group_state", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_delete_records_by_cleanup_policy_and_topic_returns_code_of_kafka(
    *, compact: bool, delete: bool, topic: str, partition: int, code: ErrorCode
) -> None:
    fixture = HandlerFixture()
    fixture.hosted.host("__consumer_offsets", leader=2, replicas=(2,), isr=(2,))
    fixture.hosted.host("t", settings=LogConfig(compact=compact, delete=delete))
    fixture.services.log_dirs = FakeLogDirs()
    request = DeleteRecordsRequest([DeleteRecordsTopic(topic, [DeleteRecordsPartition(partition, -1)])], 100)

    async def main() -> Any:
        return await resolve(delete_records.handle(fixture.context(ApiKey.DELETE_RECORDS, 2), request))

    (row,) = as_decoded(run_virtual(main), 2).topics[0].partitions
    assert row.error_code == code


class FakeLogDirs:
    """Log directory without checkpoints."""

    def directory_of(self, _log: Any) -> FakeLogDirs:
        return self

    @property
    def checkpoints(self) -> FakeLogDirs:
        return self

    def write_log_start_offsets(self, logs: Any) -> None: ...
