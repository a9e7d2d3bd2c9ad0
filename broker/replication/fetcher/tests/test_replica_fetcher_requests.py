"""What a follower asks its leader for, and how soon (R-310 to R-316, R-341)."""

from __future__ import annotations

import pytest
import trio

from ottla.broker.replication.hosted_partition import UNCERTAIN_COMMIT_MS
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.broker.tests.scripted_leader_fixture import SESSION, ScriptedLeaderFetcher, leader_batch, partition_data
from ottla.wire.errors import ErrorCode as E
from ottla.wire.errors import WireError
from ottla.wire.messages.fetch import ReplicaState

# ---------------------------------------------------------------------- what is sent


@pytest.mark.behaviour("R-313")
@pytest.mark.parametrize(
    ("level", "version", "replica_id", "state"),
    [
        (7, 13, 1, ReplicaState()),
        (9, 14, 1, ReplicaState()),
        (10, 15, -1, ReplicaState(1, 70)),
        (30, 18, -1, ReplicaState(1, 70)),
    ],
)
def test_who_asks_is_said_where_the_version_has_it(
    level: int, version: int, replica_id: int, state: ReplicaState
) -> None:
    leader = ScriptedLeaderFetcher(level=level)
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(0.1)
        (sent,) = leader.sent
        assert (sent.version, sent.request.replica_id, sent.request.replica_state) == (version, replica_id, state)

    leader.run(story)


def test_a_broker_that_registers_again_asks_under_its_new_epoch() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(0.1)
        leader.broker_epoch = 71
        await trio.sleep(0.5)
        assert [sent.request.replica_state.replica_epoch for sent in leader.sent] == [70, 71]

    leader.run(story)


def test_what_was_written_since_it_is_followed_is_not_asked_for_again() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()
    leader.log().append_as_follower(leader_batch(0, 5), 0)

    async def story() -> None:
        await trio.sleep(0.1)
        asked = leader.sent[0].partitions[0]
        assert (asked.fetch_offset, asked.last_fetched_epoch, asked.current_leader_epoch) == (5, 3, 3)

    leader.run(story)


def test_what_is_followed_no_more_is_forgotten_at_the_leader_but_not_for_a_replica_of_the_past() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions(0, 1)

    async def story() -> None:
        await trio.sleep(0.1)
        leader.fetcher.remove_partition(leader.replica(1))
        assert len(leader.fetcher) == 1
        await trio.sleep(1)
        assert leader.sent[1].forgotten == [1]
        before = leader.replica()
        leader.hosted.replicas["t", 0] = anew = leader.replica(2)
        anew.partition = 0
        leader.fetcher.add_partition(anew, 4)
        leader.fetcher.remove_partition(before)
        assert len(leader.fetcher) == 1
        leader.fetcher.remove_partition(anew)
        assert (len(leader.fetcher), leader.fetcher._lagging, leader.fetcher._uncertain_until_ms) == (0, set(), {})

    leader.run(story)


def test_one_that_is_stopped_before_it_begins_asks_for_nothing() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()
    leader.fetcher.stop()

    async def story() -> None:
        await leader.fetcher.run()

    run_virtual(story)
    assert leader.sent == []


def test_one_that_is_stopped_asks_for_nothing_more_and_hangs_up() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(0.1)
        leader.fetcher.stop()
        await trio.sleep(5)
        assert (len(leader.sent), leader.close_count) == (1, 1)

    leader.run(story)


@pytest.mark.behaviour("R-341")
def test_who_is_behind_is_held_back_while_too_much_came_of_those_who_may_be() -> None:
    leader = ScriptedLeaderFetcher(
        [
            partition_data(0, leader_batch(0), high=9),
            partition_data(1, leader_batch(0), high=9),
            partition_data(2, leader_batch(0), high=1),
        ]
    )
    leader.throttled_partitions = {0, 2}
    leader.add_partitions(0, 1, 2)

    async def story() -> None:
        await trio.sleep(0.1)
        size = len(leader_batch(0))
        assert leader.throttled_bytes == [size, size], "of the throttled ones only"
        assert {number for _, number in leader.fetcher._lagging} == {0, 1}
        leader.is_quota_exceeded = True
        await trio.sleep(0.6)
        assert leader.sent[-1].forgotten == [0], "1 may not be held back, and 2 lacks nothing"
        leader.is_quota_exceeded = False
        await trio.sleep(1)
        assert leader.sent[-1].request.session_epoch > 0
        assert [sorted(sent.partitions) for sent in leader.sent if 0 in sent.partitions] == [[0, 1, 2], [0, 1, 2], [0]]

    leader.run(story)


# ---------------------------------------------------------------------- how soon


def in_doubt(leader: ScriptedLeaderFetcher) -> None:
    """It led, and what it took then lies above its high watermark."""
    leader.log().append_as_follower(leader_batch(0, 5), 0)
    leader.replica().end_at_demotion = 5


def waits(leader: ScriptedLeaderFetcher) -> list[int]:
    return [sent.request.max_wait_ms for sent in leader.sent]


def test_who_must_know_what_is_committed_asks_every_ten_milliseconds_for_a_second() -> None:
    leader = ScriptedLeaderFetcher()
    in_doubt(leader)
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(1.8)
        assert set(waits(leader)) == {10, 500}
        assert waits(leader) == sorted(waits(leader))
        assert 80 < waits(leader).count(10) < 100
        last = max(sent.at_s for sent in leader.sent if sent.request.max_wait_ms == 10)
        assert last < UNCERTAIN_COMMIT_MS / 1000 <= last + 0.012

    leader.run(story)


def test_once_it_knows_it_waits_as_long_as_others() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, high=3)], [partition_data(0, high=5)])
    in_doubt(leader)
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(0.8)
        assert waits(leader) == [10, 10, 500, 500]
        assert leader.fetcher._uncertain_until_ms == {}

    leader.run(story)


def test_another_partition_in_doubt_has_all_of_them_asked_for_so() -> None:
    leader = ScriptedLeaderFetcher()
    in_doubt(leader)
    leader.add_partitions(0, 1)

    async def story() -> None:
        await trio.sleep(0.1)
        assert set(waits(leader)) == {10}
        leader.fetcher.remove_partition(leader.replica())
        await trio.sleep(0.6)
        assert waits(leader)[-1] == 500

    leader.run(story)


def test_with_nobody_to_ask_for_it_looks_again_after_a_second_and_at_once_when_there_is_somebody() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, error_code=E.FENCED_LEADER_EPOCH)])
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(5)
        assert len(leader.sent) == 1, "R-316: silent until it has another leader epoch"
        began = trio.current_time()
        leader.add_partitions(epoch=4)
        await trio.sleep(0.1)
        assert [sent.at_s for sent in leader.sent[1:]] == [began]

    leader.run(story)


@pytest.mark.behaviour("R-316")
def test_a_refused_row_waits_20_ms_and_twice_as_long_each_time() -> None:
    leader = ScriptedLeaderFetcher(*([partition_data(0, error_code=E.UNKNOWN_LEADER_EPOCH)] for _ in range(3)))
    leader.add_partitions()

    async def story() -> None:
        await trio.sleep(0.3)
        times = [sent.at_s for sent in leader.sent]
        assert times == [pytest.approx(at, abs=0.0005) for at in (0, 0.021, 0.062, 0.143)]

    leader.run(story)


@pytest.mark.behaviour("R-315")
@pytest.mark.parametrize("failure", [OSError("reset"), WireError("nonsense")])
def test_without_an_answer_it_hangs_up_waits_and_names_everything_again(failure: Exception) -> None:
    leader = ScriptedLeaderFetcher([partition_data(0), partition_data(1)], failure, failure)
    leader.add_partitions(0, 1)

    async def story() -> None:
        await trio.sleep(0.3)
        times = [sent.at_s for sent in leader.sent]
        assert times == [pytest.approx(at, abs=0.0005) for at in (0, 0.001, 0.022, 0.063)]
        assert leader.close_count == 2
        sent = [(s.request.session_id, s.request.session_epoch, sorted(s.partitions)) for s in leader.sent]
        assert sent[0] == (0, 0, [0, 1])
        assert sent[1][:2] == (SESSION, 1)
        assert sent[2] == sent[3] == (SESSION, 0, [0, 1])

    leader.run(story)


def test_a_request_that_was_broken_off_for_a_new_partition_is_followed_by_one_that_names_all() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions(0)

    async def story() -> None:
        await trio.sleep(0.6)
        assert leader.sent[-1].request.session_epoch == 1
        leader.add_partitions(1)
        await trio.sleep(0.1)
        last = leader.sent[-1]
        assert (last.request.session_id, last.request.session_epoch, sorted(last.partitions)) == (SESSION, 0, [0, 1])

    leader.run(story)
