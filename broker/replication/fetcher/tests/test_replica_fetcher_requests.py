"""Fetch requests of a follower and their pace (R-310 to R-316, R-341)."""

from __future__ import annotations

import pytest
import trio

from ottla.broker.replication.hosted_partition import UNCERTAIN_COMMIT_MS
from ottla.broker.tests.handler_fixture import run_virtual
from ottla.broker.tests.scripted_leader_fixture import SESSION, ScriptedLeaderFetcher, leader_batch, partition_data
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.fetch import ReplicaState

# ---------------------------------------------------------------------- requests


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
def test_fetch_names_replica_id_by_version(level: int, version: int, replica_id: int, state: ReplicaState) -> None:
    leader = ScriptedLeaderFetcher(level=level)
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.1)
        (sent,) = leader.sent
        assert (sent.version, sent.request.replica_id, sent.request.replica_state) == (version, replica_id, state)

    leader.run(scenario)


def test_fetch_after_broker_registration_has_new_broker_epoch() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.1)
        leader.broker_epoch = 71
        await trio.sleep(0.5)
        assert [sent.request.replica_state.replica_epoch for sent in leader.sent] == [70, 71]

    leader.run(scenario)


def test_fetch_starts_at_log_end_offset() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()
    leader.log().append_as_follower(leader_batch(0, 5), 0)

    async def scenario() -> None:
        await trio.sleep(0.1)
        requested = leader.sent[0].partitions[0]
        assert (requested.fetch_offset, requested.last_fetched_epoch, requested.current_leader_epoch) == (5, 3, 3)

    leader.run(scenario)


def test_removed_partition_is_forgotten_unless_replica_was_replaced() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions(0, 1)

    async def scenario() -> None:
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

    leader.run(scenario)


def test_fetcher_stopped_before_run_sends_no_request() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()
    leader.fetcher.stop()

    async def scenario() -> None:
        await leader.fetcher.run()

    run_virtual(scenario)
    assert leader.sent == []


def test_stopped_fetcher_sends_no_request_and_closes_connection() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.1)
        leader.fetcher.stop()
        await trio.sleep(5)
        assert (len(leader.sent), leader.close_count) == (1, 1)

    leader.run(scenario)


@pytest.mark.behaviour("R-341")
def test_throttled_partitions_are_left_out_while_quota_is_exceeded() -> None:
    leader = ScriptedLeaderFetcher(
        [
            partition_data(0, leader_batch(0), high=9),
            partition_data(1, leader_batch(0), high=9),
            partition_data(2, leader_batch(0), high=1),
        ]
    )
    leader.throttled_partitions = {0, 2}
    leader.add_partitions(0, 1, 2)

    async def scenario() -> None:
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

    leader.run(scenario)


# ---------------------------------------------------------------------- pace


def in_doubt(leader: ScriptedLeaderFetcher) -> None:
    """Make the replica a former leader with records above its high watermark."""
    leader.log().append_as_follower(leader_batch(0, 5), 0)
    leader.replica().end_at_demotion = 5


def waits(leader: ScriptedLeaderFetcher) -> list[int]:
    return [sent.request.max_wait_ms for sent in leader.sent]


def test_uncertain_high_watermark_fetches_every_10_ms_for_a_second() -> None:
    leader = ScriptedLeaderFetcher()
    in_doubt(leader)
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(1.8)
        assert set(waits(leader)) == {10, 500}
        assert waits(leader) == sorted(waits(leader))
        assert 80 < waits(leader).count(10) < 100
        last = max(sent.at_s for sent in leader.sent if sent.request.max_wait_ms == 10)
        assert last < UNCERTAIN_COMMIT_MS / 1000 <= last + 0.012

    leader.run(scenario)


def test_known_high_watermark_restores_max_wait() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, high=3)], [partition_data(0, high=5)])
    in_doubt(leader)
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.8)
        assert waits(leader) == [10, 10, 500, 500]
        assert leader.fetcher._uncertain_until_ms == {}

    leader.run(scenario)


def test_uncertain_partition_shortens_wait_of_all_partitions() -> None:
    leader = ScriptedLeaderFetcher()
    in_doubt(leader)
    leader.add_partitions(0, 1)

    async def scenario() -> None:
        await trio.sleep(0.1)
        assert set(waits(leader)) == {10}
        leader.fetcher.remove_partition(leader.replica())
        await trio.sleep(0.6)
        assert waits(leader)[-1] == 500

    leader.run(scenario)


def test_fetcher_without_fetchable_partition_checks_after_a_second() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, error_code=ErrorCode.FENCED_LEADER_EPOCH)])
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(5)
        assert len(leader.sent) == 1, "R-316: silent until it has another leader epoch"
        began = trio.current_time()
        leader.add_partitions(epoch=4)
        await trio.sleep(0.1)
        assert [sent.at_s for sent in leader.sent[1:]] == [began]

    leader.run(scenario)


@pytest.mark.behaviour("R-316")
def test_partition_error_backs_off_from_20_ms_exponentially() -> None:
    leader = ScriptedLeaderFetcher(*([partition_data(0, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)] for _ in range(3)))
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.3)
        times = [sent.at_s for sent in leader.sent]
        assert times == [pytest.approx(at, abs=0.0005) for at in (0, 0.021, 0.062, 0.143)]

    leader.run(scenario)


@pytest.mark.behaviour("R-315")
@pytest.mark.parametrize("failure", [OSError("reset"), WireError("nonsense")])
def test_connection_failure_reconnects_with_full_request(failure: Exception) -> None:
    leader = ScriptedLeaderFetcher([partition_data(0), partition_data(1)], failure, failure)
    leader.add_partitions(0, 1)

    async def scenario() -> None:
        await trio.sleep(0.3)
        times = [sent.at_s for sent in leader.sent]
        assert times == [pytest.approx(at, abs=0.0005) for at in (0, 0.001, 0.022, 0.063)]
        assert leader.close_count == 2
        sent = [(s.request.session_id, s.request.session_epoch, sorted(s.partitions)) for s in leader.sent]
        assert sent[0] == (0, 0, [0, 1])
        assert sent[1][:2] == (SESSION, 1)
        assert sent[2] == sent[3] == (SESSION, 0, [0, 1])

    leader.run(scenario)


def test_fetch_cancelled_for_new_partition_is_followed_by_full_request() -> None:
    leader = ScriptedLeaderFetcher()
    leader.add_partitions(0)

    async def scenario() -> None:
        await trio.sleep(0.6)
        assert leader.sent[-1].request.session_epoch == 1
        leader.add_partitions(1)
        await trio.sleep(0.1)
        last = leader.sent[-1]
        assert (last.request.session_id, last.request.session_epoch, sorted(last.partitions)) == (SESSION, 0, [0, 1])

    leader.run(scenario)
