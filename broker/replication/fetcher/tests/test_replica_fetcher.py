"""Replica fetcher: split of responses, pace of requests, and unreachable leaders (R-311 to R-322)."""

from __future__ import annotations

import logging
import struct
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.replication.fetcher.fetched_batches import split_batches
from ottla.broker.replication.fetcher.leader_endpoint import FetcherDependencies
from ottla.broker.replication.fetcher.replica_fetcher import ReplicaFetcher
from ottla.broker.replication.tests.broker_cluster import BrokerCluster, wait_until
from ottla.broker.tests.handler_fixture import VirtualEnv, run_virtual
from ottla.log.log_config import LogConfig
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages.list_offsets import ListOffsetsRequest


def a_batch(size_bytes: int, epoch: int = 3) -> bytes:
    """Return the header fields that are read: length and leader epoch."""
    return struct.pack(">qii", 0, size_bytes - 12, epoch) + bytes(size_bytes - 16)


SMALL, BIG = 100, 100_000


@pytest.mark.behaviour("R-319", "P-51")
@pytest.mark.parametrize(
    ("raw", "sizes"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(a_batch(61), [61], id="a batch without a record"),
        pytest.param(a_batch(SMALL) * 64, [64 * SMALL], id="as many as one piece has"),
        pytest.param(a_batch(SMALL) * 65, [64 * SMALL, SMALL], id="one more"),
        pytest.param(a_batch(SMALL) * 130, [64 * SMALL, 64 * SMALL, 2 * SMALL], id="and so on"),
        pytest.param(a_batch(BIG) * 4, [3 * BIG, BIG], id="as many as it takes to have 256 KiB"),
        pytest.param(a_batch(256 * 1024) + a_batch(61), [256 * 1024, 61], id="exactly so large"),
        pytest.param(a_batch(256 * 1024 - 1) + a_batch(61), [256 * 1024 + 60], id="a byte less"),
        pytest.param(a_batch(BIG) * 3 + a_batch(BIG) * 3, [3 * BIG, 3 * BIG], id="each piece begins to count anew"),
        pytest.param(a_batch(SMALL) + a_batch(SMALL, 4) + a_batch(SMALL), [SMALL], id="a later epoch, and behind it"),
        pytest.param(a_batch(SMALL, 2) * 2, [2 * SMALL], id="of an earlier epoch"),
        pytest.param(a_batch(SMALL) + a_batch(SMALL)[:-1], [SMALL], id="the last is not whole"),
        pytest.param(a_batch(SMALL) + a_batch(SMALL)[:60], [SMALL], id="of the last there is no whole header"),
        pytest.param(a_batch(SMALL) + a_batch(61, 3)[:8] + b"\0\0\0\x30" + bytes(80), [SMALL + 92], id="no batch"),
        pytest.param(a_batch(61)[:8] + b"\xff\xff\xff\xff" + bytes(80), [92], id="a negative length"),
    ],
)
def test_split_batches_returns_whole_batches_up_to_leader_epoch(raw: bytes, sizes: list[int]) -> None:
    assert [len(piece) for piece in split_batches(raw, 3)] == sizes


# ---------------------------------------------------------------------- how soon it asks


class UnansweredFetcher:
    """Fetcher with a leader that answers no request; requests are recorded with their time."""

    def __init__(self) -> None:
        env: Any = VirtualEnv()
        self.fetcher = ReplicaFetcher(
            FetcherDependencies(env, 1, 30.0, lambda: 5, lambda: 30, lambda broker: None, lambda *_: None), 2, 0
        )
        self.fetcher._connection = self  # type: ignore[assignment]
        self.requested: list[tuple[float, int]] = []

    async def call(self, request: Any, version: int) -> Any:
        self.requested.append((round(trio.current_time(), 4), sum(len(t.partitions) for t in request.topics)))
        await trio.sleep_forever()

    def close(self) -> None:
        pass

    def follow(self, *numbers: int) -> None:
        for number in numbers:
            epochs = SimpleNamespace(latest_epoch=lambda: 3)
            synced = {"recovery_point": 0, "config": LogConfig()}
            log = SimpleNamespace(log_end_offset=0, log_start_offset=0, epochs=epochs, closed=False, **synced)
            replica = SimpleNamespace(
                topic_id=b"t" * 16, partition=number, log=log, has_uncertain_records=False, leader_epoch=3
            )
            self.fetcher.add_partition(replica, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("known", "waits_s"), [(1, 0.02), (50, 0.02), (99, 0.02), (199, 0.04), (999, 0.2)])
def test_fetch_is_cancelled_to_add_a_partition_after_a_delay(known: int, waits_s: float) -> None:
    async def scenario() -> None:
        slow = UnansweredFetcher()
        slow.follow(*range(known))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow.fetcher.run)
            await trio.sleep(1)
            began = slow.requested[-1][0]
            assert len(slow.requested) == 1, "all are named, nothing is new"
            slow.follow(known)
            await trio.sleep(5)
            slow.fetcher.stop()
        (_, _), (again, named) = slow.requested
        assert (began, again) == (0.0, pytest.approx(1 + waits_s, abs=0.0005))
        assert named == known + 1, "what was broken off may not have arrived: everything is named again"

    run_virtual(scenario)


# ---------------------------------------------------------------------- unreachable leaders


def test_unreachable_leader_is_logged_once_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    brokers = BrokerCluster(2)

    def on_result() -> int:
        text = [x for x in caplog.records if x.name == "ottla.fetcher" and x.levelno == logging.WARNING]
        return sum("Error in response for fetch request to leader 1" in x.getMessage() for x in text)

    async def scenario() -> None:
        for times in (1, 2):
            brokers[1].kill()
            await trio.sleep(10)
            assert on_result() == times
            brokers[1].start()
            brokers.register()
            brokers.commit_partition(leader_epoch=brokers.partition().leader_epoch + 1)
            await wait_until(lambda: brokers[1].is_leader)
            assert await brokers[1].produce(b"x") is ErrorCode.NONE
            await trio.sleep(2)

    brokers.run(scenario)
    assert on_result() == 2


class OutOfRangeScenario:
    """Broker 2 has an empty log, and the leader's log starts after it: the fetcher requests the leader's offsets.
    Requests are recorded with their time, and fail as often as there are failures.
    """

    def __init__(self, failures: list[Exception]) -> None:
        self.brokers = BrokerCluster(2)
        self.failures = failures
        self.times: list[float] = []
        self.fetches: list[float] = []

    async def start(self) -> None:
        brokers = self.brokers
        brokers.cut.add(2)
        await trio.sleep(1)
        for number in range(6):
            assert await brokers[1].produce(b"%d" % number, acks=1) is ErrorCode.NONE
        brokers[1].log.set_high_watermark(6)
        assert brokers[1].log.maybe_increment_log_start_offset(4)
        fetcher = brokers[2].fetchers._fetchers[1, 0]
        call = fetcher._connection.call

        async def fails(request: Any, version: int) -> Any:
            if isinstance(request, ListOffsetsRequest):
                self.times.append(trio.current_time())
                if self.failures:
                    raise self.failures.pop(0)
            else:
                self.fetches.append(trio.current_time())
            return await call(request, version)

        fetcher._connection.call = fails  # type: ignore[method-assign]
        brokers.cut.clear()


@pytest.mark.behaviour("R-322")
@pytest.mark.parametrize("failure", [OSError("reset"), WireError("nonsense")])
def test_list_offsets_failure_delays_all_fetches_from_that_leader(failure: Exception) -> None:
    requested = OutOfRangeScenario([failure, failure])

    async def scenario() -> None:
        await requested.start()
        await wait_until(lambda: requested.brokers[2].log.log_start_offset == 4)
        first, second, third = requested.times[:3]
        assert 0.9 < second - first < 1.2
        assert 0.9 < third - second < 1.2
        assert not [at for at in requested.fetches if first < at < first + 0.9]
        assert len(requested.brokers[2].wires) == 3, "each time over a new connection"

    requested.brokers.run(scenario)
    assert (2, 1, ApiKey.LIST_OFFSETS, 11) in requested.brokers.requests


@pytest.mark.behaviour("R-322")
def test_list_offsets_error_delays_only_that_partition(caplog: pytest.LogCaptureFixture) -> None:
    requested = OutOfRangeScenario([ProtocolError(ErrorCode.UNKNOWN_SERVER_ERROR, "no")])

    async def scenario() -> None:
        await requested.start()
        await wait_until(lambda: requested.brokers[2].log.log_start_offset == 4)
        first, second = requested.times[:2]
        assert 0.9 < second - first < 1.2
        assert len(requested.brokers[2].wires) == 1, "the connection is as good as before"

    requested.brokers.run(scenario)
    assert [x for x in caplog.records if "Error getting offset for partition t-0" in x.getMessage()]
