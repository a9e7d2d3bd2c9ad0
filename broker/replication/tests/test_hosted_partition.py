"""Hosted partition: high watermark of a leader's own log, and refused appends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import trio

from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies
from ottla.broker.replication.partition_state import LeaderState
from ottla.broker.tests.broker_storage_fixture import NODE_ID, BrokerStorageFixture, led_topic
from ottla.broker.tests.handler_fixture import NOW_MS, topic_id_of
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import ValidationPending
from ottla.log.tests.log_fixtures import (
    NOW,
    SMALL,
    TOPIC_ID,
    append_batches,
    memory_disk,
    new_log,
    reopen_in_new_session,
)
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch import records

NEVER = 2**63 - 1
SYNCED, UNSYNCED = 30, 12


@pytest.mark.parametrize(
    ("flush_messages", "committed"),
    [
        pytest.param(NEVER, SYNCED + UNSYNCED, id="answers do not wait for the disk: all that was found"),
        pytest.param(UNSYNCED + 1, SYNCED + UNSYNCED, id="fewer than may be unsynced: all that was found"),
        pytest.param(UNSYNCED, SYNCED, id="as many as must be synced: what is known to be on the disk"),
        pytest.param(1, SYNCED, id="answers wait for the disk: what is known to be on the disk"),
    ],
)
def test_unsynced_records_of_killed_process_are_not_committed_with_flush_messages(
    flush_messages: int, committed: int
) -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    append_batches(log, SYNCED // 3)
    log.flush()
    append_batches(log, UNSYNCED // 3)
    settings = replace(SMALL, flush_messages=flush_messages)
    found = reopen_in_new_session(memory, settings, point=SYNCED)  # by the next process: the page cache is still there
    due: list[HostedPartition] = []
    replica = HostedPartition(found, TOPIC_ID, lambda _: None, due.append, IsrDependencies(30_000, lambda *_: True))
    assert replica.apply_partition_state(
        1, PartitionRegistration((1,), (1,), leader=1, leader_epoch=3, partition_epoch=0), NOW
    )
    replica.recover_high_watermark(NOW)
    assert found.high_watermark == committed
    assert bool(due) == (committed == SYNCED), "and its sync is asked for at once"


def test_follow_without_intermediate_leader_epoch_resets_follower_state() -> None:
    """Meanwhile, a member of the ISR of another leader may have truncated its copy of this log."""
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1, replicas=(NODE_ID, 2), isr=(NODE_ID, 2)))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.leader("t", 0)
        replica.append(bytearray(records.build_batch([records.NewRecord(None, b"x", NOW_MS)])), NOW_MS)
        assert isinstance(replica.state, LeaderState)
        replica.state.update_follower(2, -1, 1, 0, 1, NOW_MS)
        fixture.commit_topics(
            led_topic("t", 1, replicas=(NODE_ID, 2), isr=(NODE_ID, 2), partition_epoch=2, leader_epoch=2)
        )
        await fixture.publisher.wait_applied_and_created()
        assert isinstance(replica.state, LeaderState)
        assert replica.state.followers[2].end_offset == -1
        assert replica.log.high_watermark == 0
        replica.update_follower_fetch_state(2, -1, 1, 0, 1, NOW_MS)
        assert replica.log.high_watermark == 1

    fixture.run(scenario)


def test_isr_shrink_advances_high_watermark_and_notifies() -> None:
    fixture = BrokerStorageFixture()
    committed: list[int] = []
    fixture.replica_manager.on_high_watermark_moved.append(lambda r: committed.append(r.log.high_watermark))

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1, replicas=(1, 2), isr=(1, 2)))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.leader("t", 0)
        replica.append(bytearray(records.build_batch([records.NewRecord(None, b"x", NOW)])), NOW)
        assert (replica.log.high_watermark, committed) == (0, [0]), "the other one has fetched nothing yet"
        fixture.woken.clear()
        fixture.commit_topics(led_topic("t", 1, replicas=(1, 2), isr=(1,), partition_epoch=1))
        await fixture.publisher.wait_applied_and_created()
        assert replica.log.high_watermark == replica.log.log_end_offset
        assert set(fixture.woken) == {("fetch", "t", 0), ("hw", "t", 0), ("start", "t", 0)}
        assert committed == [0, replica.log.log_end_offset]
        fixture.woken.clear()
        fixture.commit_topics(led_topic("t", 1, replicas=(1, 2), isr=(1,), partition_epoch=1))
        await fixture.publisher.wait_applied_and_created()
        assert fixture.woken == [], "nothing has changed"

    fixture.run(scenario)


def test_append_that_commits_wakes_delayed_operations() -> None:
    fixture = BrokerStorageFixture()

    async def scenario() -> None:
        fixture.commit_topics(led_topic("t", 1, replicas=(1, 2), isr=(1,)))
        await fixture.publisher.wait_applied_and_created()
        replica = fixture.replica_manager.leader("t", 0)
        await trio.sleep(31)  # the follower was never seen, and is waited for no longer
        fixture.woken.clear()
        assert replica.advance_high_watermark(replica.log.log_end_offset, fixture.env.now_ms()) is False
        replica.append(bytearray(records.build_batch([records.NewRecord(None, b"x", NOW)])), fixture.env.now_ms())
        assert ("hw", "t", 0) in fixture.woken

    fixture.run(scenario)


def hosted(**settings: Any) -> HostedPartition:
    fixture = BrokerStorageFixture()
    log = fixture.log_dirs.directories[0].create_partition("t", 0, topic_id_of("t"), LogConfig(**settings), NOW_MS)
    fixture.replica_manager.host(log, topic_id_of("t"))
    replica = fixture.replica_manager.get("t", 0)
    assert replica is not None
    return replica


@pytest.mark.parametrize(
    ("claimed", "code"),
    [
        (-1, None),
        (5, None),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_check_epoch_of_client_returns_fenced_or_unknown_leader_epoch(claimed: int, code: ErrorCode | None) -> None:
    replica = hosted()
    replica.apply_partition_state(NODE_ID, PartitionRegistration((NODE_ID,), (NODE_ID,), NODE_ID, 5, 0), NOW_MS)
    if code is None:
        replica.check_epoch(claimed)
        return
    with pytest.raises(ProtocolError) as caught:
        replica.check_epoch(claimed)
    assert caught.value.code is code


@pytest.mark.behaviour("R-337")
@pytest.mark.parametrize(
    ("replicas", "isr", "least", "refused"),
    [
        ((NODE_ID,), (NODE_ID,), 1, False),
        ((NODE_ID,), (NODE_ID,), 2, False),
        ((NODE_ID, 2), (NODE_ID, 2), 2, False),
        ((NODE_ID, 2), (NODE_ID,), 2, True),
        ((NODE_ID, 2), (NODE_ID,), 1, False),
        ((NODE_ID, 2, 3), (NODE_ID, 2), 3, True),
    ],
)
def test_check_min_isr_returns_not_enough_replicas(
    replicas: tuple[int, ...], isr: tuple[int, ...], least: int, refused: bool
) -> None:
    replica = hosted(min_insync_replicas=least)
    replica.check_min_isr()  # a replica that does not lead refuses otherwise
    replica.apply_partition_state(NODE_ID, PartitionRegistration(replicas, isr, NODE_ID, 5, 0), NOW_MS)
    if not refused:
        replica.check_min_isr()
        return
    with pytest.raises(ProtocolError) as caught:
        replica.check_min_isr()
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_append_with_pending_validation_defers_only_clients() -> None:
    replica = hosted(validate_records=True)
    replica.apply_partition_state(NODE_ID, PartitionRegistration((NODE_ID,), (NODE_ID,), NODE_ID, 5, 0), NOW_MS)
    many = records.build_batch([records.NewRecord(b"k", b"v" * 100, NOW_MS) for _ in range(8_000)])
    with pytest.raises(ValidationPending):
        replica.append(bytearray(many), NOW_MS, at_once=False)
    assert replica.append(bytearray(many), NOW_MS).last_offset == 7_999


def test_duplicate_batch_does_not_advance_high_watermark() -> None:
    replica = hosted(flush_messages=1)
    due: list[HostedPartition] = []
    replica._flush_due = due.append
    replica.apply_partition_state(NODE_ID, PartitionRegistration((NODE_ID,), (NODE_ID,), NODE_ID, 5, 0), NOW_MS)
    batch = records.build_batch(
        [records.NewRecord(b"k", b"v", NOW_MS)], producer_id=9, producer_epoch=0, base_sequence=0
    )
    assert not replica.append(bytearray(batch), NOW_MS).duplicate
    assert (len(due), replica.log.high_watermark) == (1, 0), "it counts once it is on the disk"
    assert replica.append(bytearray(batch), NOW_MS).duplicate
    assert len(due) == 1
    replica.on_flushed(1, NOW_MS)
    assert replica.log.high_watermark == 1


def test_append_during_sync_waits_for_next_sync() -> None:
    replica = hosted()
    replica.apply_partition_state(NODE_ID, PartitionRegistration((NODE_ID,), (NODE_ID,), NODE_ID, 5, 0), NOW_MS)
    for flushing, committed in ((False, 1), (True, 1)):
        replica.is_flushing = flushing
        replica.append(bytearray(records.build_batch([records.NewRecord(b"k", b"v", NOW_MS)])), NOW_MS)
        assert replica.log.high_watermark == committed


def test_advance_high_watermark_without_leadership_returns_false() -> None:
    replica = hosted()
    replica.log.append_as_leader(bytearray(records.build_batch([records.NewRecord(b"k", b"v", NOW_MS)])), 0, NOW_MS)
    assert replica.advance_high_watermark(1, NOW_MS) is False
    assert replica.log.high_watermark == 0
