"""Handling of each kind of fetch response by a follower (R-316 to R-322, R-339)."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from ottla.broker.tests.scripted_leader_fixture import (
    ScriptedLeaderFetcher,
    ScriptedResponse,
    leader_batch,
    partition_data,
)
from ottla.log import producer_state_rebuild
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import EpochEndOffset
from ottla.wire.record_batch.records import NewRecord, build_batch


@pytest.mark.behaviour("R-319")
def test_response_appends_records_and_leaders_offsets_up_to_log_end() -> None:
    leader = ScriptedLeaderFetcher(
        [partition_data(0, leader_batch(0, 5), high=9, start=2)], [partition_data(0, b"", high=5, start=2)]
    )
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.0015)
        log = leader.log()
        assert (log.log_end_offset, log.high_watermark, log.log_start_offset) == (5, 5, 2)
        assert leader.replica().lag == 4
        assert len(leader.fetcher._lagging) == 1
        await trio.sleep(0.001)
        assert (leader.replica().lag, leader.fetcher._lagging) == (0, set())
        assert leader.sent[1].partitions[0].fetch_offset == 5
        assert leader.sent[1].partitions[0].log_start_offset == 2

    leader.run(scenario)


def test_response_to_fetch_of_older_epoch_is_ignored() -> None:
    leader = ScriptedLeaderFetcher()

    async def meanwhile() -> ScriptedResponse:
        leader.replica().leader_epoch = 4  # the image was quicker; the fetcher is notified next
        return [
            partition_data(0, leader_batch(0, 5), high=5),
            partition_data(1, leader_batch(0, 5), high=5),
            partition_data(2, leader_batch(0, 5), high=5),
        ]

    async def taken_away() -> Any:
        answer = await meanwhile()
        leader.fetcher.remove_partition(leader.replica(1))
        leader.log(2).close()
        return answer

    leader.responses = [taken_away]
    leader.add_partitions(0, 1, 2)

    async def scenario() -> None:
        await trio.sleep(0.1)
        assert [leader.log(number).log_end_offset for number in (0, 1)] == [5, 0]
        leader.fetcher.remove_partition(leader.replica(2))

    leader.run(scenario)


def test_partition_removed_between_chunks_gets_no_further_chunk() -> None:
    pieces = b"".join(leader_batch(n, size_bytes=100_000) for n in range(8))
    leader = ScriptedLeaderFetcher([partition_data(0, pieces, high=8)])
    leader.add_partitions()
    append = leader.replica().append_as_follower
    taken: list[int] = []

    class Replica(type(leader.replica())):  # type: ignore[misc]
        __slots__ = ()

        def append_as_follower(self, raw: Any, now_ms: int) -> bool:
            taken.append(len(raw))
            leader.fetcher.remove_partition(self)
            return bool(append(raw, now_ms))

    leader.replica().__class__ = Replica

    async def scenario() -> None:
        await trio.sleep(0.1)
        assert len(taken) == 1
        assert leader.log().log_end_offset == 3
        assert (leader.log().high_watermark, leader.fetcher._lagging) == (0, set())

    leader.run(scenario)


@pytest.mark.behaviour("R-316")
@pytest.mark.parametrize(
    ("raw", "failed"),
    [
        pytest.param(leader_batch(4), True, id="from before the log's end: it is given up until another epoch"),
        pytest.param(leader_batch(5)[:-1] + b"\xff", False, id="changed bytes: asked for again"),
    ],
)
def test_append_error_fails_or_delays_the_partition(raw: bytes, failed: bool) -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, raw, high=9), partition_data(1)])
    leader.log().append_as_follower(leader_batch(0, 5), 0)
    leader.add_partitions(0, 1)

    async def scenario() -> None:
        await trio.sleep(0.9)
        assert leader.sent[1].forgotten == [0], "the others are asked for as before"
        await trio.sleep(2)
        assert any(0 in sent.partitions for sent in leader.sent[1:]) != failed
        assert (leader.log().log_end_offset, leader.failed, leader.close_count) == (5, [], 0)

    leader.run(scenario)


@pytest.mark.parametrize(("code", "passing"), [(errno.EMFILE, True), (errno.EIO, False)])
def test_append_os_error_is_reported_and_retried_only_when_transient(code: int, passing: bool) -> None:
    leader = ScriptedLeaderFetcher(
        [partition_data(0, leader_batch(0), high=1)], [partition_data(0, leader_batch(0), high=1)]
    )
    leader.add_partitions()
    left = [OSError(code, "injected")]
    leader.env.disk.fault = lambda call, path: left.pop() if call == "pwrite" and left else None

    async def scenario() -> None:
        await trio.sleep(0.9)
        assert len(leader.sent) == 1
        await trio.sleep(0.2)
        assert [error.errno for error in leader.failed] == [code]
        assert leader.log().log_end_offset == int(passing)
        assert (len(leader.sent) > 1) == passing

    leader.run(scenario)


@pytest.mark.behaviour("R-339")
def test_append_is_synced_before_next_fetch_with_flush_messages() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, leader_batch(0), high=0), partition_data(1)], flush_messages=1)
    leader.add_partitions(0, 1)
    in_thread = leader.env.in_thread

    async def delayed_in_thread(work: Any, lane: Any = None) -> Any:
        await trio.sleep(0.2)
        return await in_thread(work, lane)

    leader.env.in_thread = delayed_in_thread  # type: ignore[method-assign]

    async def scenario() -> None:
        await trio.sleep(0.15)
        assert leader.sent[1].forgotten == [0]
        await trio.sleep(0.15)
        assert leader.log().recovery_point == 1
        last = leader.sent[-1]
        assert (last.partitions[0].fetch_offset, last.at_s) == (1, pytest.approx(0.221, abs=0.001)), "R-314: it is news"

    leader.run(scenario)


def test_sync_os_error_is_reported_and_stops_fetching() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, leader_batch(0), high=0)], flush_messages=1)
    leader.add_partitions()

    async def fails(work: Any, lane: Any = None) -> Any:
        await trio.lowlevel.checkpoint()
        raise OSError(errno.EIO, "injected")

    leader.env.in_thread = fails  # type: ignore[method-assign]

    async def scenario() -> None:
        await trio.sleep(3)
        assert (len(leader.failed), len(leader.sent)) == (1, 1)

    leader.run(scenario)


# ---------------------------------------------------------------------- truncation


def woken(leader: ScriptedLeaderFetcher) -> list[Any]:
    """Return the purgatory keys that are woken."""
    received: list[Any] = []
    leader.replica()._wake = received.append
    return received


@pytest.mark.behaviour("R-320")
def test_diverging_epoch_truncates_log_and_wakes_delayed_operations() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, diverging_epoch=EpochEndOffset(2, 3))])
    leader.log().append_as_follower(leader_batch(0, 3, 2) + leader_batch(3, 4, 3), 0)
    leader.add_partitions()
    received = woken(leader)

    async def scenario() -> None:
        await trio.sleep(0.1)
        assert leader.log().log_end_offset == 3
        assert ("fetch", "t", 0) in received
        assert leader.sent[1].partitions[0].fetch_offset == 3

    leader.run(scenario)


def test_producer_state_below_truncation_is_rebuilt_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment of a gibibyte took fifteen seconds in one step: with any idempotent producer, at each failover."""
    leader = ScriptedLeaderFetcher([partition_data(0, diverging_epoch=EpochEndOffset(2, 3))])
    log = leader.log()
    for first, epoch in ((0, 2), (3, 3)):
        batch = build_batch([NewRecord(None, b"", 0)] * 3, producer_id=7, producer_epoch=0, base_sequence=first)
        log.append_as_follower(bytes(first.to_bytes(8, "big") + batch[8:12]) + epoch.to_bytes(4, "big") + batch[16:], 0)
    monkeypatch.setattr(producer_state_rebuild, "_replay_batches_from", lambda *_: pytest.fail("all is read at once"))
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.1)
        assert (log.log_end_offset, log.producers.producers[7].last_sequence) == (3, 2)
        assert leader.sent[1].partitions[0].fetch_offset == 3

    leader.run(scenario)


CUT_CASES = [
    # log end here, leader's end and start offsets -> end, start here, number of requests
    pytest.param(5, [(0, 3)], 3, 0, id="the leader's ends sooner: it is cut"),
    pytest.param(5, [(0, 5), (0, 2)], 5, 0, id="at the same offset, and it begins below: tried again as it is"),
    pytest.param(5, [(0, 9), (0, 5)], 5, 0, id="it begins where this one ends: tried again as it is"),
    pytest.param(5, [(0, 9), (0, 6)], 6, 6, id="it begins behind that: everything anew from there"),
]


@pytest.mark.behaviour("R-322")
@pytest.mark.parametrize(("ends", "lies", "end", "start"), CUT_CASES)
def test_offset_out_of_range_truncates_to_leaders_offsets(
    ends: int, lies: list[tuple[int, int]], end: int, start: int
) -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)])
    leader.log().append_as_follower(leader_batch(0, 3) + leader_batch(3, ends - 3), 0)
    leader.list_offsets_responses = list(lies)
    leader.add_partitions()
    received = woken(leader)

    async def scenario() -> None:
        await trio.sleep(0.1)
        log = leader.log()
        assert (log.log_end_offset, log.log_start_offset, leader.list_offsets_responses) == (end, start, [])
        wanted = [sent.request.topics[0].partitions[0] for sent in leader.list_offsets_requests]
        assert [p.timestamp for p in wanted] == [-1, -2][: len(lies)]
        assert {p.current_leader_epoch for p in wanted} == {3}
        assert {(sent.request.replica_id, sent.request.isolation_level) for sent in leader.list_offsets_requests} == {
            (1, 0)
        }
        assert bool(received) == (end != ends)
        assert leader.sent[1].at_s < 0.01
        named = leader.sent[1].partitions
        assert [part.fetch_offset for part in named.values()] == ([end] if end != ends else []), "a session knows it"

    leader.run(scenario)


@pytest.mark.behaviour("R-322")
def test_offset_out_of_range_with_list_offsets_error_is_retried() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)])
    leader.log().append_as_follower(leader_batch(0, 5), 0)
    leader.list_offsets_responses = [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)]
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.9)
        assert (len(leader.sent), leader.log().log_end_offset) == (1, 5)
        await trio.sleep(0.2)
        assert len(leader.sent) == 2

    leader.run(scenario)


@pytest.mark.behaviour("R-322")
def test_partition_removed_during_list_offsets_is_left_unchanged() -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)])
    leader.log().append_as_follower(leader_batch(0, 5), 0)
    leader.add_partitions()

    class ReassigningOffsets(list[Any]):
        def pop(self, at: Any = 0) -> Any:
            leader.fetcher.remove_partition(leader.replica())
            return super().pop(at)

    for lies in ([(0, 3), (0, 9)], [(0, 9), (0, 9)]):
        leader.list_offsets_responses = ReassigningOffsets(lies)
        leader.responses = [[partition_data(0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]]

        async def scenario() -> None:
            await trio.sleep(0.1)
            assert leader.log().log_end_offset == 5

        leader.run(scenario)
        leader.add_partitions(epoch=leader.replica().leader_epoch + 1)
