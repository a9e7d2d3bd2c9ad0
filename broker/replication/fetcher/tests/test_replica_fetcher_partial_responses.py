"""Fetch offset of a follower after a partly appended response or before a sync."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from ottla.broker.tests.scripted_leader_fixture import (
    ScriptedLeaderFetcher,
    ScriptedResponse,
    leader_batch,
    partition_data,
)
from ottla.env.env import ThreadPool
from ottla.log import partition_log
from ottla.log.recovery.log_loader import open_log
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import EpochEndOffset
from ottla.wire.record_batch.records import NewRecord, build_batch

END = 8


def requested_offsets(leader: ScriptedLeaderFetcher) -> list[int]:
    """Return the fetch offset of each request that named the partition."""
    return [sent.partitions[0].fetch_offset for sent in leader.sent if 0 in sent.partitions]


def available_records(leader: ScriptedLeaderFetcher, size_bytes: int) -> Callable[[], Awaitable[Any]]:
    """Return the response of a leader with a log that ends at `END`, one record per batch."""

    async def answer() -> ScriptedResponse:
        at = requested_offsets(leader)[-1]
        if leader.log().config.flush_messages == 1:
            assert at <= leader.log().recovery_point, "whoever asks from there says that it keeps what is before"
        if at >= END:
            await trio.sleep(0.5)
            return []
        return [partition_data(0, b"".join(leader_batch(n, size_bytes=size_bytes) for n in range(at, END)), high=END)]

    return answer


def following(first: list[ScriptedResponse], size_bytes: int = 100_000, **log: Any) -> ScriptedLeaderFetcher:
    leader = ScriptedLeaderFetcher(*first, **log)
    leader.responses += [available_records(leader, size_bytes)] * 40
    return leader


def catches_up(leader: ScriptedLeaderFetcher) -> None:
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(8)
        assert leader.log().log_end_offset == END
        assert requested_offsets(leader)[-1] == END

    leader.run(scenario)


def test_corrupt_batch_in_response_is_fetched_again_from_log_end() -> None:
    """The first batches are in the log: a second fetch of them would be refused and stop the follower for good."""
    damaged = bytearray(b"".join(leader_batch(n, size_bytes=100_000) for n in range(END)))
    damaged[-1] ^= 0xFF
    catches_up(following([[partition_data(0, bytes(damaged), high=END)]]))


@pytest.mark.parametrize("settings", [{}, {"flush_messages": 1}])
def test_transient_error_in_response_is_retried_from_log_end(settings: dict[str, int]) -> None:
    leader = following([], **settings)
    writes = 0

    def fault(call: str, path: str) -> OSError | None:
        nonlocal writes
        writes += call == "pwrite" and path.endswith(".log")
        return OSError(errno.EMFILE, "no more") if writes == 5 and call == "pwrite" else None

    leader.env.disk.fault = fault
    catches_up(leader)


def test_sync_short_of_descriptors_is_retried_before_next_fetch() -> None:
    leader = following([], size_bytes=1, flush_messages=1)
    left = [OSError(errno.EMFILE, "no more")]

    def fault(call: str, path: str) -> OSError | None:
        unsynced = call == "open" and path.endswith("leader-epoch-checkpoint") and leader.log().log_end_offset
        return left.pop() if left and unsynced else None

    leader.env.disk.fault = fault
    catches_up(leader)
    assert not left
    assert set(requested_offsets(leader)) == {0, END}


def test_failing_sync_is_retried_once_a_second() -> None:
    leader = ScriptedLeaderFetcher(flush_messages=1)
    leader.log().append_as_follower(leader_batch(0), 0)
    tried: list[float] = []

    def fault(call: str, path: str) -> OSError | None:
        if call != "open" or not path.endswith("leader-epoch-checkpoint") or trio.current_time() > 3.5:
            return None
        tried.append(trio.current_time())
        return OSError(errno.EMFILE, "no more")

    async def at_once() -> ScriptedResponse:
        await trio.sleep(0.01)
        return []

    leader.responses += [at_once] * 300
    leader.add_partitions()
    leader.env.disk.fault = fault

    async def scenario() -> None:
        leader.fetcher.add_partition(leader.replica(1), 3)
        await trio.sleep(6)
        assert len(tried) == 4
        assert requested_offsets(leader)[0] == 1

    leader.run(scenario)


def unsynced() -> ScriptedLeaderFetcher:
    """Return a log that a killed process left in the page cache, loaded by the next one."""
    leader = following([], size_bytes=1, flush_messages=1)
    leader.log().append_as_follower(b"".join(leader_batch(n) for n in range(5)), 0)
    found = leader.log()
    leader.replica().log = open_log(found.disk, found.directory, "t", 0, found.config, 0, clean=False)
    assert (leader.log().log_end_offset, leader.log().recovery_point) == (5, 0)
    return leader


def test_unsynced_log_of_killed_process_is_synced_before_first_fetch() -> None:
    """A fetch from an offset promises to keep the records before it, where ``flush.messages`` is set."""
    leader = unsynced()
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(0.01)
        assert requested_offsets(leader)[0] == 5
        assert leader.log().recovery_point >= 5
        await trio.sleep(8)
        assert leader.log().log_end_offset == END

    leader.run(scenario)


def test_unsynced_log_is_synced_before_fetch_in_a_new_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = unsynced()
    real: Any = leader.env.in_thread

    async def slow(job: Any, lane: ThreadPool, *rest: Any) -> Any:
        if lane is ThreadPool.SYNC:
            await trio.sleep(3)
        return await real(job, lane, *rest)

    monkeypatch.setattr(leader.env, "in_thread", slow)
    leader.add_partitions()

    async def scenario() -> None:
        await trio.sleep(1)
        leader.add_partitions(epoch=4)
        await trio.sleep(1.9)
        assert requested_offsets(leader) == []
        await trio.sleep(8)
        assert leader.log().log_end_offset == END

    leader.run(scenario)


@pytest.mark.parametrize(
    "answer", [{"diverging_epoch": EpochEndOffset(2, 3)}, {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}]
)
def test_truncation_of_one_log_does_not_block_other_partitions(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = ScriptedLeaderFetcher([partition_data(0, **answer), partition_data(1)])
    batch = build_batch([NewRecord(None, b"", 0)] * 5, producer_id=7, producer_epoch=0, base_sequence=0)
    leader.log().append_as_follower(batch, 0)
    leader.list_offsets_responses = [(0, 3)]
    result = trio.Event()

    def blocked_rebuild(*_: Any, **__: Any) -> Any:
        yield result.wait()

    monkeypatch.setattr(partition_log, "producer_state_below_job", blocked_rebuild)
    leader.add_partitions(0, 1)

    async def scenario() -> None:
        await trio.sleep(2)
        assert len([sent for sent in leader.sent if sent.at_s > 0.1]) > 2
        assert leader.log().log_end_offset == 5
        result.set()
        await trio.sleep(1)
        assert leader.log().log_end_offset == 0, "its one batch goes"

    leader.run(scenario)
