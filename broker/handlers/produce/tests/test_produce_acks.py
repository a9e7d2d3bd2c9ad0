"""Delayed produce with acks=all, and its results (R-337). Source: ``DelayedProduce.java`` (4.3.1)."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.handlers.admin import delete_records
from ottla.broker.handlers.produce import produce
from ottla.broker.handlers.produce.tests.test_produce import NEWEST, request, row_of
from ottla.broker.tests.handler_fixture import NOW_MS, HandlerFixture, resolve, run_virtual, start
from ottla.controller.metadata.image import PartitionRegistration
from ottla.log.log_config import LogConfig
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.metadata_records import RegisterBrokerRecord


def waiting(fixture: HandlerFixture, meanwhile: Any, *, acks: int = -1, timeout_ms: int = 1000) -> tuple[int, float]:
    """Produce to a partition with a follower that has not fetched yet; return the error and the seconds it took."""
    body = request(("r", 0, make_batch(0)), acks=acks, timeout_ms=timeout_ms)
    answer: Any = start(produce.handle(fixture.context(ApiKey.PRODUCE, NEWEST), body))

    async def main() -> tuple[int, float]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(meanwhile, fixture.hosted.replicas["r", 0])
            row = row_of(await answer if isinstance(answer, Awaitable) else answer)
            took = trio.current_time()
            nursery.cancel_scope.cancel()
        return row.error_code, took

    return run_virtual(main)


@pytest.fixture
def replicated() -> HandlerFixture:
    fixture = HandlerFixture()
    fixture.hosted.host("r", isr=(1, 2), replicas=(1, 2))
    return fixture


async def follower_fetches(replica: Any) -> None:
    await trio.sleep(0.3)
    replica.state.update_follower(2, -1, 3, 0, 3, 0)
    replica.on_flushed(3, 0)


async def nothing(replica: Any) -> None:
    await trio.sleep_forever()


async def leader_resigns(replica: Any) -> None:
    await trio.sleep(0.2)
    replica.resign()
    replica.notify_waiters()


def test_acks_all_waits_for_all_isr_members(replicated: HandlerFixture) -> None:
    assert waiting(replicated, follower_fetches) == (0, 0.3)


def test_acks_1_does_not_wait(replicated: HandlerFixture) -> None:
    assert waiting(replicated, nothing, acks=1) == (0, 0.0)


def test_acks_all_timeout_returns_request_timed_out_and_keeps_records(replicated: HandlerFixture) -> None:
    assert waiting(replicated, nothing, timeout_ms=700) == (ErrorCode.REQUEST_TIMED_OUT, 0.7)
    assert replicated.hosted.replicas["r", 0].log.log_end_offset == 3


def test_acks_all_returns_not_leader_or_follower_when_leader_resigns(replicated: HandlerFixture) -> None:
    assert waiting(replicated, leader_resigns) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.2)


def leader_becomes_another(replica: Any) -> None:
    replica.apply_partition_state(1, PartitionRegistration((1, 2), (1, 2), 2, 4, 1), NOW_MS)


async def new_leader_has_it_committed(replica: Any) -> None:
    await trio.sleep(0.2)
    leader_becomes_another(replica)
    await trio.sleep(0.05)
    replica.update_leader_offsets(3, 0)


async def new_leader_has_no_high_watermark(replica: Any) -> None:
    await trio.sleep(0.2)
    leader_becomes_another(replica)
    await trio.sleep(0.05)
    replica.update_leader_offsets(2, 0)


async def new_leader_is_without_it(replica: Any) -> None:
    await trio.sleep(0.2)
    leader_becomes_another(replica)
    replica.log.truncate_to(0, NOW_MS)
    replica.notify_waiters()


async def new_leader_has_others_there(replica: Any) -> None:
    await trio.sleep(0.2)
    leader_becomes_another(replica)
    replica.log.truncate_to(0, NOW_MS)
    replica.append_as_follower(make_batch(0), NOW_MS)
    replica.update_leader_offsets(3, 0)


async def partition_has_no_leader(replica: Any) -> None:
    await trio.sleep(0.2)
    replica.apply_partition_state(1, PartitionRegistration((1, 2), (1,), -1, 4, 1), NOW_MS)


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        (new_leader_has_it_committed, (0, 0.25)),
        (new_leader_has_no_high_watermark, (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1.2)),
        (new_leader_is_without_it, (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.2)),
        (new_leader_has_others_there, (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.2)),
        (partition_has_no_leader, (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.2)),
    ],
)
def test_acks_all_after_leader_change_returns_state_at_new_leader(
    replicated: HandlerFixture, meanwhile: Any, expected: tuple[int, float]
) -> None:
    assert waiting(replicated, meanwhile) == pytest.approx(expected)


async def leader_is_elected_again(replica: Any) -> None:
    await trio.sleep(0.2)
    registration = PartitionRegistration((1, 2), (1, 2), 2, 4, 1)
    replica.apply_partition_state(1, registration, NOW_MS)
    replica.apply_partition_state(1, replace(registration, leader=1, leader_epoch=5, partition_epoch=2), NOW_MS)
    replica.state.update_follower(2, -1, 3, 0, 3, 0)
    replica.on_flushed(3, 0)


async def leader_stays_under_another_epoch(replica: Any) -> None:
    await trio.sleep(0.2)
    replica.apply_partition_state(1, PartitionRegistration((1, 2), (1, 2), 1, 4, 1), NOW_MS)
    await follower_fetches(replica)


async def leader_stays_under_another_epoch_without_fetches(replica: Any) -> None:
    """The member reported in the previous epoch that it has all records."""
    await trio.sleep(0.2)
    replica.state.update_follower(2, -1, 3, 0, 3, NOW_MS)
    replica.apply_partition_state(1, PartitionRegistration((1, 2), (1, 2), 1, 4, 1), NOW_MS)
    replica.recover_high_watermark(NOW_MS)


async def leader_is_alone_under_another_epoch(replica: Any) -> None:
    await trio.sleep(0.2)
    replica.apply_partition_state(1, PartitionRegistration((1,), (1,), 1, 4, 1), NOW_MS)
    replica.recover_high_watermark(NOW_MS)


async def minimum_rises(replica: Any) -> None:
    replica.state.update_follower(2, -1, 3, 0, 3, 0)
    replica.on_flushed(3, 0)
    replica.log.update_config(LogConfig(min_insync_replicas=2))
    replica.apply_partition_state(1, PartitionRegistration((1, 2), (1,), 1, 3, 1), NOW_MS)


def test_acks_all_with_intermediate_leader_is_not_acknowledged(replicated: HandlerFixture) -> None:
    """Other records may lie at these offsets now."""
    assert waiting(replicated, leader_is_elected_again) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0.2)


def test_acks_all_in_new_epoch_of_same_leader_is_acknowledged(replicated: HandlerFixture) -> None:
    assert waiting(replicated, leader_stays_under_another_epoch) == (0, 0.5)


@pytest.mark.parametrize(
    "meanwhile", [leader_stays_under_another_epoch_without_fetches, leader_is_alone_under_another_epoch]
)
def test_follow_image_with_new_epoch_of_same_leader_commits_without_fetch(
    replicated: HandlerFixture, meanwhile: Any
) -> None:
    """R-329."""
    assert waiting(replicated, meanwhile) == (0, 0.2)


@pytest.mark.behaviour("R-337")
def test_acks_all_below_min_isr_returns_not_enough_replicas_after_append(replicated: HandlerFixture) -> None:
    assert waiting(replicated, minimum_rises) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, 0)


# ---------------------------------------------------------------------- DeleteRecords waits for followers too


class AcksLogDirectory:
    @property
    def checkpoints(self) -> AcksLogDirectory:
        return self

    def write_log_start_offsets(self, logs: Any) -> None:
        pass


def deleting(fixture: HandlerFixture, meanwhile: Any, timeout_ms: int = 1000) -> tuple[int, int, float]:
    """Delete the first batch of a partition of two; return error, low watermark and the seconds it took."""
    replica = fixture.hosted.replicas["r", 0]
    directory = AcksLogDirectory()
    fixture.services.log_dirs = SimpleNamespace(directory_of=lambda log: directory)
    fixture.hosted.image = replace(
        fixture.hosted.image,
        brokers={2: RegisterBrokerRecord(2, fenced=False), 3: RegisterBrokerRecord(3, fenced=True)},
    )
    for _ in range(2):
        replica.append(make_batch(0), NOW_MS)
    replica.state.update_follower(2, -1, 6, 0, 6, 0)  # type: ignore[union-attr]
    replica.on_flushed(6, 0)
    topic = DeleteRecordsTopic("r", [DeleteRecordsPartition(0, 3)])

    async def main() -> tuple[int, int, float]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(meanwhile, replica)
            context = fixture.context(ApiKey.DELETE_RECORDS, 2)
            answer = await resolve(delete_records.handle(context, DeleteRecordsRequest([topic], timeout_ms)))
            took = trio.current_time()
            nursery.cancel_scope.cancel()
        row = answer.topics[0].partitions[0]
        return row.error_code, row.low_watermark, took

    return run_virtual(main)


async def follower_starts_higher(replica: Any) -> None:
    for first in (1, 3):
        await trio.sleep(0.2)
        replica.update_follower_fetch_state(2, -1, 6, first, 6, 0)


@pytest.mark.behaviour("R-338")
@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        pytest.param(follower_starts_higher, (0, 3, 0.4), id="until the follower starts there too"),
        pytest.param(nothing, (ErrorCode.REQUEST_TIMED_OUT, 0, 1.0), id="until the time is over"),
        pytest.param(leader_resigns, (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 0.2), id="until somebody else leads"),
    ],
)
def test_delete_records_waits_for_live_replicas(
    replicated: HandlerFixture, meanwhile: Any, expected: tuple[int, int, float]
) -> None:
    assert deleting(replicated, meanwhile) == expected
