"""ShareFetch of records in the remote tier. Source: ``DelayedShareFetch.java`` (apache/kafka 4.3.1)."""

from __future__ import annotations

import errno
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from ottla.broker.handlers.share.share_fetch import _ShareFetch
from ottla.broker.storage.tiered.chunk_cache import CachedRemoteStorage
from ottla.broker.storage.tiered.remote_log_reader import RemoteFetchInfo
from ottla.broker.storage.tiered.remote_storage import RemoteStorageError
from ottla.broker.storage.tiered.tests.remote_reads_fixture import MAX_WAIT_MS, TieredFixture
from ottla.broker.tests.share_group_fixture import ShareGroupNode
from ottla.env.disk import FileSlice
from ottla.log.tests.log_fixtures import make_marker, make_transactional_batch
from ottla.wire.codec.chunk_sequence import flatten_chunks
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.share_fetch import PartitionData, ShareFetchResponse
from ottla.wire.record_batch.batch_header import iterate_batches


class TieredShareGroupNode(ShareGroupNode):
    """Node whose topic t has the offsets 0-149, of which only those from 126 on are local."""

    def __init__(self, chunk_bytes: int | None = None) -> None:
        super().__init__()
        self.tiered = self.fixture = TieredFixture()
        if chunk_bytes is not None:
            self.tiered.cache(chunk_bytes)
        self.tiered.host()
        self.tiered.append_batches(50)
        assert self.tiered.tier().local_log_start_offset == 126
        self._adopt()

    def _adopt(self) -> None:
        hosted: Any = self.fixture.hosted
        hosted.image = replace(hosted.image, features={"share.version": 1})
        hosted.on_resigned = []

    async def fetch_row(self, epoch: int, *partitions: int, **fields: Any) -> PartitionData | None:
        answer: ShareFetchResponse = await self.fetch(epoch, *partitions, **fields)
        rows = [row for topic in answer.responses for row in topic.partitions]
        assert len(rows) <= 1
        return rows[0] if rows else None

    def run_with_reads(self, scenario: Any) -> None:
        async def work() -> None:
            async with trio.open_nursery() as nursery:
                self.tiered._nursery = nursery
                await scenario()
                nursery.cancel_scope.cancel()

        self.run(work)


def offsets(row: PartitionData | None) -> list[tuple[int, int]]:
    """Return the batches of a row, and check that they hold the acquired records."""
    assert row is not None
    assert row.error_code == 0
    raw = b"".join(
        each.read_all() if isinstance(each, FileSlice) else bytes(each) for each in flatten_chunks([row.records or b""])
    )
    found = [(header.base_offset, header.last_offset) for _, header in iterate_batches(raw)]
    acquired = [(each.first_offset, each.last_offset) for each in row.acquired_records]
    assert bool(found) == bool(acquired)
    assert not found or (found[0][0], found[-1][1]) == (acquired[0][0], acquired[-1][1])
    return found


@pytest.mark.parametrize("chunk_bytes", [None, 150, 1 << 20])
def test_share_group_acquires_all_records_of_both_tiers(chunk_bytes: int | None) -> None:
    node = TieredShareGroupNode(chunk_bytes)

    async def scenario() -> None:
        out = offsets(await node.fetch_row(0, 0, max_records=10, max_wait_ms=5000))
        assert out == [(at, at + 2) for at in range(0, 12, 3)], "whole batches of at least ten records"
        epoch = 1
        while out[-1][1] < 149:
            began = trio.current_time()
            out += offsets(await node.fetch_row(epoch, max_records=40, max_wait_ms=5000))
            assert trio.current_time() == began
            epoch += 1
        assert out == [(at, at + 2) for at in range(0, 150, 3)]
        assert node.tiered.read_stats.fetches >= 4

    node.run_with_reads(scenario)


def test_failed_remote_read_of_share_group_returns_its_error_once() -> None:
    node = TieredShareGroupNode()

    async def scenario() -> None:
        node.tiered.remote.errors.append(RemoteStorageError("refused"))
        row = await node.fetch_row(0, 0, max_wait_ms=5000)
        assert row is not None
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert offsets(await node.fetch_row(1, max_records=3))[0] == (0, 2)

    node.run_with_reads(scenario)


def test_chunk_that_a_share_group_cannot_read_is_fetched_again() -> None:
    node = TieredShareGroupNode(1 << 20)

    async def scenario() -> None:
        cached, disk = node.tiered.remote.storage, node.tiered.env.disk
        assert isinstance(cached, CachedRemoteStorage)
        assert offsets(await node.fetch_row(0, 0, max_records=3, max_wait_ms=5000)) == [(0, 2)]
        found = node.tiered.reads.start_fetch(RemoteFetchInfo(node.tiered.log(), 3, 1000, True, False)).result
        assert found is not None
        assert isinstance(found.records, FileSlice)
        damaged = found.records.file

        def fail(name: str, path: str) -> OSError | None:
            return OSError(errno.EIO, "damaged", path) if name == "pread" and path.startswith("/cache/") else None

        start_fetch = node.tiered.reads.start_fetch

        def start_and_fail(info: RemoteFetchInfo) -> Any:
            read, disk.fault = start_fetch(info), fail
            return read

        node.tiered.reads.start_fetch = start_and_fail  # type: ignore[method-assign]
        row = await node.fetch_row(1, max_records=3, max_wait_ms=5000)
        assert row is not None
        assert row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        disk.fault, node.tiered.reads.start_fetch = None, start_fetch  # type: ignore[method-assign]
        await trio.sleep(1)
        before = cached.stats.misses
        assert offsets(await node.fetch_row(2, max_records=3)) == [(3, 5)]
        assert cached.stats.misses == before + 1
        assert damaged.size() > 0, "a response may still be sent from it"

    node.run_with_reads(scenario)


def test_remote_read_of_share_group_beyond_the_maximum_wait_acquires_nothing() -> None:
    node = TieredShareGroupNode()

    async def scenario() -> None:
        node.tiered.remote.delay_s = 3.0
        began = trio.current_time()
        assert offsets(await node.fetch_row(0, 0, max_wait_ms=10_000)) == []
        assert trio.current_time() - began == pytest.approx(MAX_WAIT_MS / 1000)
        node.tiered.remote.delay_s = 0.0
        assert offsets(await node.fetch_row(1, max_records=3)) == [(0, 2)]

    node.run_with_reads(scenario)


def test_throttled_remote_read_of_share_group_acquires_nothing() -> None:
    node = TieredShareGroupNode()

    async def scenario() -> None:
        node.tiered.remote.read_quota.wait_ms = 100
        assert offsets(await node.fetch_row(0, 0, max_wait_ms=300)) == []
        assert trio.current_time() == 0.3
        assert node.tiered.read_stats.fetches == 0

    node.run_with_reads(scenario)


@pytest.mark.behaviour("C-218")
def test_aborted_records_of_the_remote_tier_are_not_acquired_by_read_committed_group() -> None:
    node = TieredShareGroupNode()
    node.tiered = node.fixture = TieredFixture()
    node.tiered.host()
    node.tiered.append(make_transactional_batch(7, 0))
    node.tiered.append(make_marker(7, 0))
    node.tiered.append_batches(40)
    node.tiered.tier()
    node._adopt()

    async def scenario() -> None:
        manager = node.fixture.services.share_partition_manager
        manager.group_config.is_read_committed = lambda group: True
        row = await node.fetch_row(0, 0, max_records=6, max_wait_ms=300)
        assert row is not None
        assert row.acquired_records[0].first_offset == 1, "offset 0 was aborted"

    node.run_with_reads(scenario)


def test_share_fetch_yields_between_the_starts_of_remote_reads() -> None:
    started: list[object] = []
    services = SimpleNamespace(remote_reads=SimpleNamespace(start_fetch=started.append))
    request: Any = SimpleNamespace(_context=SimpleNamespace(services=services))
    partition: Any = ("t", SimpleNamespace(replica=None), "read")
    job = _ShareFetch._read_tiered(request, [partition] * 3, 10)
    assert [len(started) for _ in zip(range(3), job, strict=False)] == [1, 2, 3]
