"""Replication between brokers, end to end over real messages: R-310 to R-340."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from ottla.broker.replication.tests.broker_cluster import BrokerCluster, wait_until
from ottla.log.log_flush import LogFlush
from ottla.log.recovery.log_loader import create_log
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def test_acks_all_is_answered_when_isr_has_identical_records() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        began = trio.current_time()
        assert await brokers.leader.produce(*numbered(3)) is ErrorCode.NONE
        assert trio.current_time() - began < 0.1, "followers hear of records at once"
        assert brokers[1].log.high_watermark == 3
        assert brokers[1].committed == [0, 3], "at the start of the leader epoch, and once every member has the records"
        for number in (2, 3):
            assert brokers[number].values() == numbered(3)
            assert brokers[number].log.epochs.entries == brokers[1].log.epochs.entries == [(0, 0)]
        await wait_until(lambda: brokers[2].log.high_watermark == 3)

    brokers.run(scenario)
    assert {(key, version) for _, _, key, version in brokers.requests} == {(ApiKey.FETCH, 18)}, "R-311, R-312"


def test_killed_isr_member_blocks_commit_until_fenced_and_catches_up() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        assert await brokers[1].produce(*numbered(2)) is ErrorCode.NONE
        brokers[3].kill()
        assert await brokers[1].produce(b"2", timeout_ms=200) is ErrorCode.REQUEST_TIMED_OUT
        assert brokers[1].log.high_watermark == 2, "R-332: a member whose copy is not known holds it"
        brokers.fence(3)
        await wait_until(lambda: brokers[1].log.high_watermark == 3)
        assert await brokers[1].produce(*numbered(5, 3)) is ErrorCode.NONE
        brokers[3].start()
        brokers.register()
        await wait_until(lambda: brokers.partition().isr == (1, 2, 3))
        assert brokers[3].values() == numbered(8)
        assert await brokers[1].produce(b"8") is ErrorCode.NONE
        assert brokers[3].values() == numbered(9)

    brokers.run(scenario)


def test_demoted_leader_acknowledges_records_committed_by_new_leader() -> None:
    """With NOT_LEADER_OR_FOLLOWER, a producer would write these records a second time."""
    brokers = BrokerCluster()

    async def scenario() -> None:
        reported: list[ErrorCode] = []

        async def write() -> None:
            reported.append(await brokers[1].produce(b"0"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await wait_until(
                lambda: brokers[2].log.log_end_offset == brokers[3].log.log_end_offset == 1, every_s=0.0001
            )
            assert brokers[1].log.high_watermark == 0, "it has not heard of that yet"
            brokers.commit_partition(leader=2)
            began = trio.current_time()
        assert reported == [ErrorCode.NONE]
        assert trio.current_time() - began < 0.05, "it asks again and again until it knows"
        assert await brokers[2].produce(b"1") is ErrorCode.NONE
        assert [brokers[number].values() for number in (1, 2, 3)] == [numbered(2)] * 3

    brokers.run(scenario)


def test_leader_failure_keeps_acknowledged_records_and_truncates_others() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        assert await brokers[1].produce(*numbered(3)) is ErrorCode.NONE
        brokers.cut |= {2, 3}
        await trio.sleep(1)  # the responses to their pending fetches come too late
        assert await brokers[1].produce(b"lost", acks=1) is ErrorCode.NONE
        brokers[1].kill()
        brokers.cut.clear()
        brokers.fence(1, leader=2)
        await wait_until(lambda: brokers[2].is_leader)
        assert await brokers[2].produce(*numbered(3, 3)) is ErrorCode.NONE
        assert brokers[1].log.log_end_offset == 4
        brokers[1].start()
        brokers.register()
        await wait_until(lambda: 1 in brokers.partition().isr)
        for number in (1, 2, 3):
            assert brokers[number].values() == numbered(6)
            assert brokers[number].log.epochs.entries == [(0, 0), (1, 3)]

    brokers.run(scenario)


def test_slow_isr_member_is_removed_and_rejoins_when_caught_up() -> None:
    brokers = BrokerCluster(replica_lag_time_max_ms="2000")

    async def scenario() -> None:
        brokers.cut.add(3)
        brokers.refuses += [ErrorCode.NOT_CONTROLLER, ErrorCode.STALE_BROKER_EPOCH]
        await trio.sleep(1)
        assert await brokers[1].produce(b"0") is ErrorCode.NONE, "and the write waits no longer than that"
        assert 3 < trio.current_time() < 4.5
        assert brokers.partition().isr == (1, 2)
        brokers.cut.clear()
        await wait_until(lambda: brokers.partition().isr == (1, 2, 3))
        assert brokers[3].values() == [b"0"]
        assert brokers.refuses == []

    brokers.run(scenario)


@pytest.mark.parametrize("members", [2, 3])
def test_under_min_isr_refuses_acks_all_and_commits_none(members: int) -> None:
    brokers = BrokerCluster(min_insync_replicas=str(members))

    async def scenario() -> None:
        assert await brokers[1].produce(b"0") is ErrorCode.NONE
        others = range(2, 3 - members + 2 + 1)
        for number in others:
            brokers[number].kill()
            brokers.fence(number)
        await wait_until(lambda: len(brokers[1].replica.state.isr.maximal_isr) == members - 1)  # type: ignore[union-attr]
        assert await brokers[1].produce(b"1") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await brokers[1].produce(b"1", acks=1) is ErrorCode.NONE
        assert brokers[1].log.high_watermark == 1
        for number in others:
            brokers[number].start()
        brokers.register()
        await wait_until(lambda: brokers[1].log.high_watermark == 2)

    brokers.run(scenario)


def test_empty_follower_starts_at_leaders_log_start() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        brokers[3].kill()
        brokers.fence(3)
        brokers[3].env.memory = type(brokers[3].env.memory)(brokers[3].env._rng, brokers[3].env.now_ms)
        for value in numbered(6):
            assert await brokers[1].produce(value) is ErrorCode.NONE
        assert brokers[1].log.maybe_increment_log_start_offset(4)
        brokers[3].start()
        brokers.register()
        await wait_until(lambda: 3 in brokers.partition().isr)
        assert brokers[3].log.log_start_offset == 4
        assert brokers[3].values() == numbered(2, 4)

    brokers.run(scenario)


def test_empty_follower_starts_with_whole_batch_at_leaders_log_start() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        brokers[3].kill()
        brokers.fence(3)
        brokers[3].env.memory = type(brokers[3].env.memory)(brokers[3].env._rng, brokers[3].env.now_ms)
        for first in (0, 3, 6):
            assert await brokers[1].produce(*numbered(3, first)) is ErrorCode.NONE
        assert brokers[1].log.maybe_increment_log_start_offset(5)
        brokers[3].start()
        brokers.register()
        await wait_until(lambda: 3 in brokers.partition().isr)
        assert brokers[3].values() == numbered(6, 3)
        assert (brokers[3].log.log_start_offset, brokers[3].log.log_end_offset) == (5, 9)

    brokers.run(scenario)


def test_log_start_offset_advances_at_followers() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        for value in numbered(3):
            await brokers[1].produce(value)
        assert brokers[1].log.maybe_increment_log_start_offset(2)
        await wait_until(lambda: [brokers[n].log.log_start_offset for n in (2, 3)] == [2, 2])
        await wait_until(lambda: brokers[1].replica.low_watermark({2: 0, 3: 0}) == 2)

    brokers.run(scenario)


def test_unclean_leader_truncates_other_replicas() -> None:
    """After an unclean election the leader's log ends before the followers' (R-322) or diverges (R-320)."""
    brokers = BrokerCluster()

    async def scenario() -> None:
        brokers[3].kill()
        brokers.fence(3)
        for value in numbered(4):
            assert await brokers[1].produce(value) is ErrorCode.NONE
        for number in (1, 2):
            brokers[number].kill()
        brokers[3].start()
        brokers.register()
        brokers.commit_partition(leader=3, isr=(3,))
        await wait_until(lambda: brokers[3].is_leader)
        brokers[1].start()
        brokers.register()
        await wait_until(lambda: 1 in brokers.partition().isr)
        assert brokers[1].values() == []
        assert await brokers[3].produce(b"new") is ErrorCode.NONE
        brokers[2].start()
        brokers.register()
        await wait_until(lambda: 2 in brokers.partition().isr)
        assert [brokers[n].values() for n in (1, 2, 3)] == [[b"new"]] * 3

    brokers.run(scenario)


def test_leadership_changes_keep_all_records_on_all_replicas() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        for turn, leader in enumerate((2, 3, 1, 3, 2, 1)):
            brokers.commit_partition(leader=leader)
            await wait_until(lambda: brokers.leader.is_leader)
            assert await brokers.leader.produce(*numbered(2, 2 * turn)) is ErrorCode.NONE
        for number in (1, 2, 3):
            assert brokers[number].values() == numbered(12)
        await wait_until(lambda: all(brokers[n].log.high_watermark == 12 for n in (1, 2, 3)))

    brokers.run(scenario)


# ---------------------------------------------------------------------- failures of one partition


def test_append_short_of_descriptors_is_retried_by_follower() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        assert await brokers[1].produce(b"0") is ErrorCode.NONE
        left = [3]

        def fault(label: str, path: str) -> OSError | None:
            if label == "pwrite" and "/t-0/" in path and left[0]:
                left[0] -= 1
                return OSError(errno.EMFILE, "injected", path)
            return None

        brokers[2].env.disk.fault = fault
        assert await brokers[1].produce(b"1") is ErrorCode.NONE
        assert left == [0]
        assert 2.5 < trio.current_time() < 4.5, "a second each time"
        assert brokers[2].values() == numbered(2)

    brokers.run(scenario)


def test_follower_disk_error_reports_directory_and_stops_fetching() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        assert await brokers[1].produce(b"0") is ErrorCode.NONE
        brokers[2].env.disk.fault = lambda call, path: OSError(errno.EIO, "injected") if "/t-0/" in path else None
        brokers.fence(3)
        assert await brokers[1].produce(b"1", timeout_ms=3000) is ErrorCode.REQUEST_TIMED_OUT
        assert brokers[2].failed == 1

    brokers.run(scenario)


def test_corrupt_bytes_of_leader_are_not_appended() -> None:
    brokers = BrokerCluster()

    async def scenario() -> None:
        brokers.cut.add(3)
        await trio.sleep(1)
        assert await brokers[1].produce(b"0", acks=1) is ErrorCode.NONE
        brokers[1].log.segments.active.file.pwrite(b"\xff", 62)
        brokers.cut.clear()
        await trio.sleep(5)
        assert brokers[3].values() == []

    brokers.run(scenario)


def test_flush_of_moved_follower_log_syncs_it_in_its_new_directory() -> None:
    brokers = BrokerCluster(log_flush_interval_messages="1")

    async def scenario() -> None:
        broker = brokers[2]
        wait = broker.env.in_thread

        async def moves(work: Any, lane: Any = None) -> Any:
            if isinstance(work, LogFlush) and broker.log.directory == "/a/t-0":
                log = create_log(broker.env.disk, "/b/t-0", "t", 0, broker.log.topic_id, broker.log.config, 0)
                log.append_as_follower(b"".join(bytes(raw) for _, raw in broker.log.segments.batches()), 0)
                broker.replica.log = log
            return await wait(work, lane)

        broker.env.in_thread = moves
        assert await brokers[1].produce(b"0") is ErrorCode.NONE
        assert (broker.log.directory, broker.log.recovery_point) == ("/b/t-0", 1)

    brokers.run(scenario)


def test_flush_error_of_moved_log_fails_its_old_directory_only() -> None:
    brokers = BrokerCluster(log_flush_interval_messages="1")
    failed: list[str] = []

    async def scenario() -> None:
        broker = brokers[2]
        wait = broker.env.in_thread

        async def breaks(work: Any, lane: Any = None) -> Any:
            if isinstance(work, LogFlush) and broker.log.directory == "/a/t-0":
                log = create_log(broker.env.disk, "/b/t-0", "t", 0, broker.log.topic_id, broker.log.config, 0)
                log.append_as_follower(b"".join(bytes(raw) for _, raw in broker.log.segments.batches()), 0)
                broker.replica.log = log
                raise OSError(errno.EIO, "injected")
            return await wait(work, lane)

        broker.env.in_thread = breaks
        for fetcher in broker.fetchers._fetchers.values():
            fetcher._dependencies = fetcher._dependencies._replace(fail=lambda error, log: failed.append(log.directory))
        assert await brokers[1].produce(b"0") is ErrorCode.NONE
        assert (broker.log.directory, broker.log.recovery_point) == ("/b/t-0", 1)

    brokers.run(scenario)
    assert failed == ["/a/t-0"]


def test_follower_with_flush_messages_fetches_only_after_sync() -> None:
    brokers = BrokerCluster(log_flush_interval_messages="1")
    synced: list[int] = []

    async def scenario() -> None:
        for number in (2, 3):
            env = brokers[number].env
            wait = env.in_thread

            async def slow(work: Any, lane: Any = None, wait: Any = wait) -> Any:
                if isinstance(work, LogFlush):
                    await trio.sleep(0.5)
                    synced.append(work.end)
                return await wait(work, lane)

            env.in_thread = slow
        began = trio.current_time()
        assert await brokers[1].produce(b"0") is ErrorCode.NONE
        assert trio.current_time() - began >= 0.5
        assert synced == [1, 1]
        assert [brokers[n].log.recovery_point for n in (2, 3)] == [1, 1]

    brokers.run(scenario)
