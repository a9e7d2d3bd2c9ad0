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
from ottla.wire.errors import ErrorCode as E


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % n for n in range(first, first + count)]


def test_acks_all_is_answered_once_every_member_has_it_and_all_have_the_same_bytes() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        began = trio.current_time()
        assert await brokers.leader.produce(*numbered(3)) is E.NONE
        assert trio.current_time() - began < 0.1, "followers hear of records at once"
        assert brokers[1].log.high_watermark == 3
        assert brokers[1].committed == [0, 3], "at the start of the leader epoch, and once every member has the records"
        for number in (2, 3):
            assert brokers[number].values() == numbered(3)
            assert brokers[number].log.epochs.entries == brokers[1].log.epochs.entries == [(0, 0)]
        await wait_until(lambda: brokers[2].log.high_watermark == 3)

    brokers.run(story)
    assert {(key, version) for _, _, key, version in brokers.requests} == {(ApiKey.FETCH, 18)}, "R-311, R-312"


def test_a_member_that_is_killed_holds_writes_until_it_is_fenced_and_returns_with_everything() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        assert await brokers[1].produce(*numbered(2)) is E.NONE
        brokers[3].kill()
        assert await brokers[1].produce(b"2", timeout_ms=200) is E.REQUEST_TIMED_OUT
        assert brokers[1].log.high_watermark == 2, "R-332: a member whose copy is not known holds it"
        brokers.fence(3)
        await wait_until(lambda: brokers[1].log.high_watermark == 3)
        assert await brokers[1].produce(*numbered(5, 3)) is E.NONE
        brokers[3].start()
        brokers.register()
        await wait_until(lambda: brokers.partition().isr == (1, 2, 3))
        assert brokers[3].values() == numbered(8)
        assert await brokers[1].produce(b"8") is E.NONE
        assert brokers[3].values() == numbered(9)

    brokers.run(story)


def test_what_a_leader_took_before_it_was_relieved_it_acknowledges_once_the_new_one_has_committed_it() -> None:
    """Told NOT_LEADER_OR_FOLLOWER, a producer would write a second time what lies there already."""
    brokers = BrokerCluster()

    async def story() -> None:
        told: list[E] = []

        async def write() -> None:
            told.append(await brokers[1].produce(b"0"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await wait_until(
                lambda: brokers[2].log.log_end_offset == brokers[3].log.log_end_offset == 1, every_s=0.0001
            )
            assert brokers[1].log.high_watermark == 0, "it has not heard of that yet"
            brokers.commit_partition(leader=2)
            began = trio.current_time()
        assert told == [E.NONE]
        assert trio.current_time() - began < 0.05, "it asks again and again until it knows"
        assert await brokers[2].produce(b"1") is E.NONE
        assert [brokers[number].values() for number in (1, 2, 3)] == [numbered(2)] * 3

    brokers.run(story)


def test_after_the_leaders_end_what_was_acknowledged_is_at_the_next_and_what_was_not_is_cut() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        assert await brokers[1].produce(*numbered(3)) is E.NONE
        brokers.cut |= {2, 3}
        await trio.sleep(1)  # what their fetches wait for comes too late
        assert await brokers[1].produce(b"lost", acks=1) is E.NONE
        brokers[1].kill()
        brokers.cut.clear()
        brokers.fence(1, leader=2)
        await wait_until(lambda: brokers[2].is_leader)
        assert await brokers[2].produce(*numbered(3, 3)) is E.NONE
        assert brokers[1].log.log_end_offset == 4
        brokers[1].start()
        brokers.register()
        await wait_until(lambda: 1 in brokers.partition().isr)
        for number in (1, 2, 3):
            assert brokers[number].values() == numbered(6)
            assert brokers[number].log.epochs.entries == [(0, 0), (1, 3)]

    brokers.run(story)


def test_a_member_that_is_too_slow_is_let_go_and_comes_back_once_it_has_everything() -> None:
    brokers = BrokerCluster(replica_lag_time_max_ms="2000")

    async def story() -> None:
        brokers.cut.add(3)
        brokers.refuses += [E.NOT_CONTROLLER, E.STALE_BROKER_EPOCH]
        await trio.sleep(1)
        assert await brokers[1].produce(b"0") is E.NONE, "and the write waits no longer than that"
        assert 3 < trio.current_time() < 4.5
        assert brokers.partition().isr == (1, 2)
        brokers.cut.clear()
        await wait_until(lambda: brokers.partition().isr == (1, 2, 3))
        assert brokers[3].values() == [b"0"]
        assert brokers.refuses == []

    brokers.run(story)


@pytest.mark.parametrize("members", [2, 3])
def test_under_min_isr_nothing_is_taken_and_nothing_is_committed(members: int) -> None:
    brokers = BrokerCluster(min_insync_replicas=str(members))

    async def story() -> None:
        assert await brokers[1].produce(b"0") is E.NONE
        others = range(2, 3 - members + 2 + 1)
        for number in others:
            brokers[number].kill()
            brokers.fence(number)
        await wait_until(lambda: len(brokers[1].replica.state.isr.maximal_isr) == members - 1)  # type: ignore[union-attr]
        assert await brokers[1].produce(b"1") is E.NOT_ENOUGH_REPLICAS
        assert await brokers[1].produce(b"1", acks=1) is E.NONE
        assert brokers[1].log.high_watermark == 1
        for number in others:
            brokers[number].start()
        brokers.register()
        await wait_until(lambda: brokers[1].log.high_watermark == 2)

    brokers.run(story)


def test_an_empty_follower_begins_where_the_leaders_log_starts() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        brokers[3].kill()
        brokers.fence(3)
        brokers[3].env.memory = type(brokers[3].env.memory)(brokers[3].env._rng, brokers[3].env.now_ms)
        for value in numbered(6):
            assert await brokers[1].produce(value) is E.NONE
        assert brokers[1].log.maybe_increment_log_start_offset(4)
        brokers[3].start()
        brokers.register()
        await wait_until(lambda: 3 in brokers.partition().isr)
        assert brokers[3].log.log_start_offset == 4
        assert brokers[3].values() == numbered(2, 4)

    brokers.run(story)


def test_an_empty_follower_begins_with_the_whole_batch_the_leaders_log_starts_within() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        brokers[3].kill()
        brokers.fence(3)
        brokers[3].env.memory = type(brokers[3].env.memory)(brokers[3].env._rng, brokers[3].env.now_ms)
        for first in (0, 3, 6):
            assert await brokers[1].produce(*numbered(3, first)) is E.NONE
        assert brokers[1].log.maybe_increment_log_start_offset(5)
        brokers[3].start()
        brokers.register()
        await wait_until(lambda: 3 in brokers.partition().isr)
        assert brokers[3].values() == numbered(6, 3)
        assert (brokers[3].log.log_start_offset, brokers[3].log.log_end_offset) == (5, 9)

    brokers.run(story)


def test_a_log_start_that_rises_rises_at_the_followers() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        for value in numbered(3):
            await brokers[1].produce(value)
        assert brokers[1].log.maybe_increment_log_start_offset(2)
        await wait_until(lambda: [brokers[n].log.log_start_offset for n in (2, 3)] == [2, 2])
        await wait_until(lambda: brokers[1].replica.low_watermark({2: 0, 3: 0}) == 2)

    brokers.run(story)


def test_who_leads_on_with_less_has_the_others_cut_to_it() -> None:
    """Of an unclean election: the leader's log ends before the followers' (R-322), or has another past (R-320)."""
    brokers = BrokerCluster()

    async def story() -> None:
        brokers[3].kill()
        brokers.fence(3)
        for value in numbered(4):
            assert await brokers[1].produce(value) is E.NONE
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
        assert await brokers[3].produce(b"new") is E.NONE
        brokers[2].start()
        brokers.register()
        await wait_until(lambda: 2 in brokers.partition().isr)
        assert [brokers[n].values() for n in (1, 2, 3)] == [[b"new"]] * 3

    brokers.run(story)


def test_leaders_and_followers_change_places_on_one_node() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        for turn, leader in enumerate((2, 3, 1, 3, 2, 1)):
            brokers.commit_partition(leader=leader)
            await wait_until(lambda: brokers.leader.is_leader)
            assert await brokers.leader.produce(*numbered(2, 2 * turn)) is E.NONE
        for number in (1, 2, 3):
            assert brokers[number].values() == numbered(12)
        await wait_until(lambda: all(brokers[n].log.high_watermark == 12 for n in (1, 2, 3)))

    brokers.run(story)


# ---------------------------------------------------------------------- what goes wrong with one partition


def test_what_a_process_is_only_short_of_is_tried_again() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        assert await brokers[1].produce(b"0") is E.NONE
        left = [3]

        def fault(what: str, path: str) -> OSError | None:
            if what == "pwrite" and "/t-0/" in path and left[0]:
                left[0] -= 1
                return OSError(errno.EMFILE, "injected", path)
            return None

        brokers[2].env.disk.fault = fault
        assert await brokers[1].produce(b"1") is E.NONE
        assert left == [0]
        assert 2.5 < trio.current_time() < 4.5, "a second each time"
        assert brokers[2].values() == numbered(2)

    brokers.run(story)


def test_a_directory_that_fails_under_a_follower_is_told_and_nothing_more_is_asked_for() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        assert await brokers[1].produce(b"0") is E.NONE
        brokers[2].env.disk.fault = lambda what, path: OSError(errno.EIO, "injected") if "/t-0/" in path else None
        brokers.fence(3)
        assert await brokers[1].produce(b"1", timeout_ms=3000) is E.REQUEST_TIMED_OUT
        assert brokers[2].failed == 1

    brokers.run(story)


def test_bytes_that_changed_at_the_leader_are_not_taken() -> None:
    brokers = BrokerCluster()

    async def story() -> None:
        brokers.cut.add(3)
        await trio.sleep(1)
        assert await brokers[1].produce(b"0", acks=1) is E.NONE
        brokers[1].log.segments.active.file.pwrite(b"\xff", 62)
        brokers.cut.clear()
        await trio.sleep(5)
        assert brokers[3].values() == []

    brokers.run(story)


def test_with_flush_messages_what_a_follower_has_in_another_directory_by_now_is_synced_there() -> None:
    brokers = BrokerCluster(log_flush_interval_messages="1")

    async def story() -> None:
        broker = brokers[2]
        wait = broker.env.in_thread

        async def moves(work: Any, lane: Any = None) -> Any:
            if isinstance(work, LogFlush) and broker.log.directory == "/a/t-0":
                log = create_log(broker.env.disk, "/b/t-0", "t", 0, broker.log.topic_id, broker.log.config, 0)
                log.append_as_follower(b"".join(bytes(raw) for _, raw in broker.log.segments.batches()), 0)
                broker.replica.log = log
            return await wait(work, lane)

        broker.env.in_thread = moves
        assert await brokers[1].produce(b"0") is E.NONE
        assert (broker.log.directory, broker.log.recovery_point) == ("/b/t-0", 1)

    brokers.run(story)


def test_a_disk_that_refuses_a_sync_is_the_one_the_log_has_left_and_it_counts_where_it_lies_now() -> None:
    brokers = BrokerCluster(log_flush_interval_messages="1")
    failed: list[str] = []

    async def story() -> None:
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
        assert await brokers[1].produce(b"0") is E.NONE
        assert (broker.log.directory, broker.log.recovery_point) == ("/b/t-0", 1)

    brokers.run(story)
    assert failed == ["/a/t-0"]


def test_with_flush_messages_a_follower_asks_beyond_only_what_is_on_its_disk() -> None:
    brokers = BrokerCluster(log_flush_interval_messages="1")
    synced: list[int] = []

    async def story() -> None:
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
        assert await brokers[1].produce(b"0") is E.NONE
        assert trio.current_time() - began >= 0.5
        assert synced == [1, 1]
        assert [brokers[n].log.recovery_point for n in (2, 3)] == [1, 1]

    brokers.run(story)
