"""Followers of tiered partitions: start above the records in the remote store, and retries of all that can fail."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.replication.fetcher.leader_endpoint import FetcherDependencies
from ottla.broker.replication.fetcher.tests.tiered_brokers import (
    PRODUCER_ID,
    RECORDS_PER_SEGMENT,
    TieredBrokers,
    check_follower,
    run,
)
from ottla.broker.replication.fetcher.tier_state_machine import TierStart, request_tier_start
from ottla.broker.replication.tests.broker_cluster import wait_until
from ottla.broker.storage.tiered.remote_storage import IndexType, RemoteStorageError, RetriableRemoteStorageError
from ottla.broker.storage.tiered.remote_thread_pool import RemoteReadQueueFullError
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.log.log_config import NO_TIERING
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

LATEST, EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING = -1, -2, -4, -6


# ---------------------------------------------------------------------- start above the remote records


@pytest.mark.behaviour("R-347")
@pytest.mark.parametrize("follower_records", [0, 3])
def test_follower_starts_at_the_leaders_local_log_start_with_its_epochs_and_producers(follower_records: int) -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        if follower_records:
            tiered.append(follower_records)
            await wait_until(lambda: tiered.follower_log.log_end_offset == follower_records)
        await tiered.start()
        await tiered.copy(local_segments=2, log_start=4)
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)
        check_follower(tiered, tiered.leader_log.local_log_start_offset)
        tiered.append(4)
        await wait_until(tiered.is_replicated)
        assert not tiered.brokers[2].failed

    tiered = run(scenario)
    first = follower_records + 3 * RECORDS_PER_SEGMENT
    assert tiered.requested[-3:] == [LATEST, EARLIEST, EARLIEST_LOCAL]
    assert tiered.leader_log.local_log_start_offset == first
    assert tiered.leader_log.epochs.entries[0] == (0, 4)


def test_follower_below_the_log_start_is_reset_there_first() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        await tiered.copy(log_start=RECORDS_PER_SEGMENT + 1)
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)
        check_follower(tiered, 4 * RECORDS_PER_SEGMENT)

    assert run(scenario).requested == [LATEST, EARLIEST, LATEST, EARLIEST, EARLIEST_LOCAL]


def test_restarted_follower_continues_from_its_own_log() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        await tiered.copy(log_start=2)
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)
        tiered.brokers[2].kill()
        tiered.append(2)
        tiered.brokers[2].start()
        tiered.brokers.register()
        await wait_until(lambda: tiered.brokers[2].replicas.get("t", 0) is not None)
        await wait_until(lambda: tiered.follower_log.log_end_offset == tiered.leader_log.log_end_offset)
        assert tiered.follower_log.segments.base_offsets[0] == 4 * RECORDS_PER_SEGMENT
        entry = tiered.leader_log.producers.producers.entry(PRODUCER_ID)
        assert tiered.follower_log.producers.producers.entry(PRODUCER_ID) == entry

    assert run(scenario).requested.count(EARLIEST_LOCAL) == 1


def test_follower_does_not_start_after_remote_records_that_the_leader_lost() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start(segments=2)
        await tiered.tasks.copy_segments()
        log, now_ms = tiered.leader_log, tiered.brokers[1].env.now_ms()
        log.truncate_to(7, now_ms)  # as after an unclean election; the remote segment has offsets 5 to 9
        log.roll(now_ms)
        tiered.sequence = 7
        tiered.commit_next_epoch(2)
        await tiered.wait_for_epoch()
        tiered.append(6)
        tiered.tasks.on_leadership()
        log.maybe_increment_local_log_start_offset(7)
        tiered.connect_follower()
        await trio.sleep(5)
        assert tiered.follower_log.log_end_offset == 0
        log.roll(now_ms)
        await tiered.copy()
        tiered.append(2)
        await wait_until(tiered.is_replicated)
        check_follower(tiered, 13)

    run(scenario)


@pytest.mark.behaviour("R-348")
@pytest.mark.parametrize("uploaded", [True, False])
def test_empty_follower_skips_the_tiered_offsets_if_configured(*, uploaded: bool) -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        if uploaded:
            await tiered.copy(local_segments=3)
            assert tiered.leader_log.local_log_start_offset < tiered.leader_log.highest_remote_offset
        tiered.skip_tiered_offsets()
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)
        assert tiered.follower_log.segments.base_offsets[0] == (4 * RECORDS_PER_SEGMENT if uploaded else 0)

    assert run(scenario).requested == ([LATEST, EARLIEST, EARLIEST_PENDING] if uploaded else [])


@pytest.mark.behaviour("R-348")
def test_follower_with_records_does_not_skip_the_tiered_offsets() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        tiered.append(1)
        await wait_until(lambda: tiered.follower_log.log_end_offset == 1)
        await tiered.start()
        await tiered.copy(local_segments=3)
        tiered.skip_tiered_offsets()
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)
        check_follower(tiered, tiered.leader_log.local_log_start_offset)

    run(scenario)


# ---------------------------------------------------------------------- failures


def fail_read(error: Exception | tuple[IndexType, bytes]) -> Callable[[TieredBrokers], None]:
    return lambda tiered: tiered.remote.failures.append(error)


def lose_metadata(tiered: TieredBrokers) -> None:
    tiered.remote.segments = None


def lose_segments(tiered: TieredBrokers) -> None:
    tiered.remote.segments = type(tiered.topic.cache)()


def disable_tiering(tiered: TieredBrokers) -> None:
    log = tiered.follower_log
    log.update_config(type(log.config)(tiering=NO_TIERING))


def repair(tiered: TieredBrokers) -> None:
    tiered.remote.segments = tiered.topic.cache
    tiered.follower_log.update_config(tiered.leader_log.config)


@pytest.mark.behaviour("R-347")
@pytest.mark.parametrize(
    ("fail", "text"),
    [
        (lose_metadata, "RemoteLogManager is not ready for partition: t-0"),
        (lose_segments, "as the previous remote log segment metadata was not found"),
        (disable_tiering, "as remote log storage is not yet enabled"),
        (fail_read(RetriableRemoteStorageError("slow down")), "slow down"),
        (fail_read(RemoteStorageError("access denied")), "access denied"),
        (fail_read(OSError(errno.EIO, "unreadable")), "unreadable"),
        (fail_read(RemoteReadQueueFullError("100 wait")), "100 wait"),
        (fail_read((IndexType.LEADER_EPOCH, b"")), "leader epochs of remote segment"),
        (fail_read((IndexType.LEADER_EPOCH, b"0\n2\n3 0\n1 7\n")), "leader epochs of remote segment"),
        (fail_read((IndexType.LEADER_EPOCH, b"0\n1\n4294967296 0\n")), "leader epochs of remote segment"),
        (fail_read((IndexType.LEADER_EPOCH, b"\xff\x00not a checkpoint\n")), "Malformed checkpoint file"),
        (fail_read((IndexType.PRODUCER_SNAPSHOT, b"\0\1damaged")), "Corrupt producer snapshot"),
    ],
)
def test_failed_rebuild_leaves_the_log_unchanged_and_is_repeated(
    fail: Callable[[TieredBrokers], None], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.fetcher")

    async def scenario(tiered: TieredBrokers) -> None:
        tiered.append(2)
        await wait_until(lambda: tiered.follower_log.log_end_offset == 2)
        await tiered.start()
        await tiered.copy()
        fail(tiered)
        tiered.connect_follower()
        await wait_until(lambda: text in caplog.text)
        assert (tiered.follower_log.log_start_offset, tiered.follower_log.log_end_offset) == (0, 2)
        repair(tiered)
        await wait_until(tiered.is_replicated)
        check_follower(tiered, 2 + 4 * RECORDS_PER_SEGMENT)
        stats = tiered.remote.stats
        assert stats.aux_state_builds - stats.aux_state_errors == 1
        assert (stats.aux_state_errors > 0) == (fail is not disable_tiering)
        assert not tiered.brokers[2].failed

    run(scenario)
    is_expected = "RemoteLogManager is not ready" in text or text in ("slow down", "unreadable", "100 wait")
    prefix = (
        "Could not build remote log auxiliary state" if is_expected else "Error building remote log auxiliary state"
    )
    assert f"{prefix} for t-0" in caplog.text


def test_segment_without_producer_snapshot_is_used_without_producers(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        for name in list(tiered.brokers[1].env.disk.list_files(tiered.leader_log.directory)):
            if name.endswith(".snapshot"):
                tiered.brokers[1].env.disk.unlink(f"{tiered.leader_log.directory}/{name}")
        await tiered.copy(local_segments=1)
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)

    run(scenario)
    assert "has no producer snapshot" in caplog.text


@pytest.mark.behaviour("R-347")
@pytest.mark.parametrize("name", ["UNKNOWN_LEADER_EPOCH", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_SERVER_ERROR"])
def test_error_of_the_leader_is_retried(name: str, caplog: pytest.LogCaptureFixture) -> None:
    code = ErrorCode[name]
    caplog.set_level(logging.INFO, "ottla.fetcher")

    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        await tiered.copy()
        tiered.list_offsets_errors = [code]
        tiered.connect_follower()
        await wait_until(tiered.is_replicated)

    run(scenario)
    is_expected = code is not ErrorCode.UNKNOWN_SERVER_ERROR
    assert ("Could not build remote log auxiliary state for t-0 due to error" in caplog.text) == is_expected
    assert ("Error building remote log auxiliary state for t-0" in caplog.text) != is_expected


@pytest.mark.behaviour("R-347")
def test_fenced_follower_waits_for_the_next_leader_epoch() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        await tiered.copy()
        tiered.list_offsets_errors = [ErrorCode.FENCED_LEADER_EPOCH]
        tiered.connect_follower()
        await wait_until(lambda: not tiered.list_offsets_errors)
        await trio.sleep(10)
        assert tiered.follower_log.log_end_offset == 0
        assert len(tiered.requested) == 1
        tiered.commit_next_epoch()
        await tiered.wait_for_epoch()
        tiered.append(1)
        await wait_until(tiered.is_replicated)

    run(scenario)


def test_leader_change_while_the_store_is_read_discards_the_result() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        await tiered.copy()
        before: list[int] = []
        follower = tiered.brokers[2].replica

        async def elect() -> None:
            tiered.remote.before_read = trio.lowlevel.checkpoint
            tiered.commit_next_epoch()
            await wait_until(lambda: follower.leader_epoch == tiered.brokers.partition().leader_epoch)
            before.append(tiered.follower_log.truncations)

        tiered.remote.before_read = elect
        tiered.connect_follower()
        await wait_until(lambda: bool(before))
        await tiered.wait_for_epoch()
        tiered.append(1)
        await wait_until(tiered.is_replicated)
        assert tiered.follower_log.truncations == before[0] + 1, "one rebuild, in the new leader epoch"

    run(scenario)


def test_failed_local_disk_fails_the_log_directory() -> None:
    async def scenario(tiered: TieredBrokers) -> None:
        await tiered.start()
        await tiered.copy()
        disk = tiered.brokers[2].env.disk

        async def break_disk() -> None:
            await trio.lowlevel.checkpoint()
            disk.fault = lambda operation, path: OSError(errno.EIO, "broken") if operation == "unlink" else None

        tiered.remote.before_read = break_disk
        tiered.connect_follower()
        await wait_until(lambda: tiered.follower_log.closed)

    run(scenario)


# ---------------------------------------------------------------------- leader epoch of the record before the start


class LeaderConnection:
    """Leader with given offsets, and the end offset and epoch that it returns for an earlier epoch."""

    def __init__(self, offsets: dict[int, tuple[int, int]], earlier: tuple[int, int] = (-1, -1)) -> None:
        self._offsets, self._earlier = offsets, earlier
        self.epochs: list[int] = []

    async def call(self, request: Any, version: int) -> Any:
        await trio.lowlevel.checkpoint()
        part = request.topics[0].partitions[0]
        assert part.current_leader_epoch == 9
        if isinstance(request, ListOffsetsRequest):
            assert version == 11
            offset, epoch = self._offsets[part.timestamp]
            row = ListOffsetsPartitionResponse(0, 0, timestamp=-1, offset=offset, leader_epoch=epoch)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", [row])])
        assert (version, request.replica_id) == (4, 1)
        self.epochs.append(part.leader_epoch)
        epoch, end = self._earlier
        return OffsetForLeaderEpochResponse(
            topics=[OffsetForLeaderTopicResult("t", [EpochEndOffset(0, 0, epoch, end)])]
        )


@pytest.mark.behaviour("R-347")
@pytest.mark.parametrize(
    ("local", "earlier", "previous_epoch", "requested"),
    [
        ((90, 0), (-1, -1), 0, []),
        ((90, 3), (1, 90), 1, [2]),  # the record before the start is of an earlier epoch; epoch 2 has no record
        ((90, 3), (2, 85), 3, [2]),  # the epoch began before the start
        ((90, 1), (0, 90), 0, [0]),
    ],
)
def test_segment_is_looked_up_by_the_epoch_of_the_record_before_the_start(
    local: tuple[int, int], earlier: tuple[int, int], previous_epoch: int, requested: list[int]
) -> None:
    connection: Any = LeaderConnection({LATEST: (200, 9), EARLIEST: (4, 0), EARLIEST_LOCAL: local}, earlier)
    log = SimpleNamespace(log_end_offset=50)
    replica: Any = SimpleNamespace(topic="t", partition=0, log=log)
    env: Any = VirtualEnv()
    dependencies = FetcherDependencies(env, 1, 30.0, lambda: 5, lambda: 30, lambda broker: None, lambda *_: None)

    async def scenario() -> TierStart:
        return await request_tier_start(connection, dependencies, replica, 9)

    assert run_virtual(scenario) == TierStart(4, 200, 90, previous_epoch)
    assert connection.epochs == requested


@pytest.mark.behaviour("R-348")
@pytest.mark.parametrize("is_copied", [True, False])
def test_unknown_pending_upload_offset_is_the_log_start_or_an_error(*, is_copied: bool) -> None:
    local = (90, 0) if is_copied else (4, 0)
    connection: Any = LeaderConnection(
        {LATEST: (200, 9), EARLIEST: (4, 0), EARLIEST_PENDING: (-1, -1), EARLIEST_LOCAL: local}
    )
    tiering = SimpleNamespace(is_enabled=True)
    log = SimpleNamespace(log_end_offset=0, config=SimpleNamespace(tiering=tiering, compact=False))
    replica: Any = SimpleNamespace(topic="t", partition=0, log=log)
    env: Any = VirtualEnv()
    dependencies = FetcherDependencies(
        env, 1, 30.0, lambda: 5, lambda: 30, lambda broker: None, lambda *_: None, skips_tiered_offsets=lambda: True
    )

    async def scenario() -> object:
        try:
            return await request_tier_start(connection, dependencies, replica, 9)
        except Exception as error:
            return error

    found = run_virtual(scenario)
    if is_copied:
        assert getattr(found, "code", None) is ErrorCode.OFFSET_NOT_AVAILABLE
    else:
        assert found == TierStart(4, 200, 4, 0)
