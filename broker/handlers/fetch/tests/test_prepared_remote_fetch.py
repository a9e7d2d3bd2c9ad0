"""Prepared Fetch of records in the chunk cache: its responses and counters equal those of the handler."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from ottla.broker.handlers.fetch.tests.fetch_comparison import NEWEST, FetchComparison, open_session, request
from ottla.broker.requests.peer import Peer
from ottla.broker.storage.tiered.tests.remote_reads_fixture import TieredFixture
from ottla.log.log_config import NO_TIERING
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchRequest

SIZE = len(make_batch(10))


def tiered(chunk_bytes: int) -> TieredFixture:
    """Return a node with the tiered topics t and u, of which the chunks of t are open."""
    fixture = TieredFixture()
    fixture.cache(chunk_bytes)
    for name in ("t", "u"):
        fixture.host(name)
        fixture.append_aborted(7, 1, name)
        fixture.append_batches(3, name)
        fixture.append_aborted(8, 1, name)
        fixture.append_batches(47, name)
        fixture.tier(name)
    return fixture


def counters(fixture: TieredFixture) -> list[Any]:
    stats = fixture.read_stats
    return [stats.fetches, stats.fetched_bytes, stats.fetch_errors, fixture.remote.read_quota.recorded]


class RemoteFetchComparison(FetchComparison):
    """Comparison whose nodes have a tiered topic."""

    def __init__(self, chunk_bytes: int = 500) -> None:
        self.fixtures = tiered(chunk_bytes), tiered(chunk_bytes)
        super().__init__(self.fixtures)

    def fetch(self, request: FetchRequest, version: int = NEWEST) -> Any:
        """Serve a request on both nodes, and compare their counters, too."""
        answer = super().fetch(request, version)
        assert counters(self.fixtures[0]) == counters(self.fixtures[1])
        return answer

    def warm(self, isolation: int = 0) -> None:
        """Read the remote records once, so that their chunks are open, over another connection."""
        for offset in range(0, self.fixtures[0].log().local_log_start_offset, 3):
            self.fetch(ask(offset, isolation=isolation))
        self.prepared = 0
        self.reconnect()

    def reconnect(self) -> None:
        """Continue over a new connection."""
        for node in self.nodes:
            node.peer = Peer("127.0.0.1", ("here", 9092))


def ask(offset: int, *others: tuple[str, int, int], **more: Any) -> FetchRequest:
    return request(("t", 0, offset), *others, leader_epoch=-1, **more)


@pytest.mark.parametrize("version", [4, 7, 12, 13, NEWEST])
def test_prepared_fetch_serves_cached_remote_records(version: int) -> None:
    nodes = RemoteFetchComparison()
    nodes.warm()
    nodes.repeat(ask(60, each=700), version)
    for offset in (30, 9, 59, 61, 62, 100):
        nodes.fetch(ask(offset, each=700), version)
    assert nodes.prepared == 7
    assert nodes.fixtures[0].remote.calls < 50


def test_prepared_fetch_of_cached_remote_records_updates_its_session() -> None:
    nodes = RemoteFetchComparison()
    nodes.warm()
    session = open_session(nodes, ("t", 0, 9))
    request_of_session = ask(30, session=session, epoch=1)
    nodes.repeat(request_of_session)
    before = nodes.prepared
    nodes.fetch(ask(60, session=session, epoch=request_of_session.session_epoch))
    assert nodes.prepared == before + 1


@pytest.mark.parametrize("offset", [70, 100])
def test_prepared_fetch_leaves_chunks_that_are_not_open_to_the_handler(offset: int) -> None:
    nodes = RemoteFetchComparison()
    nodes.fetch(ask(30))
    nodes.repeat(ask(30))
    before = nodes.prepared
    nodes.fetch(ask(offset))
    assert nodes.prepared == before
    nodes.fetch(ask(offset))
    assert nodes.prepared == before + 1


def test_prepared_fetch_leaves_aborted_remote_transactions_to_the_handler() -> None:
    nodes = RemoteFetchComparison()
    nodes.warm(1)
    nodes.repeat(ask(nodes.fixtures[0].log().local_log_start_offset, isolation=1))
    answer = nodes.fetch(ask(0, isolation=1, each=1))
    assert nodes.prepared == 1
    (row,) = answer.responses[0].partitions
    assert [each.first_offset for each in row.aborted_transactions] == [0]


def test_prepared_fetch_leaves_throttled_remote_reads_to_the_handler() -> None:
    nodes = RemoteFetchComparison()
    nodes.warm()
    nodes.repeat(ask(60))
    for fixture in nodes.fixtures:
        fixture.remote.read_quota.wait_ms = 100
    nodes.fetch(ask(60))
    assert nodes.prepared == 1


def test_prepared_fetch_leaves_several_remote_partitions_to_the_handler() -> None:
    nodes = RemoteFetchComparison()
    nodes.warm()
    for _ in range(10):
        nodes.fetch(ask(60, ("u", 0, 60)))
    assert nodes.prepared == 0


@pytest.mark.parametrize("seed", range(4))
def test_prepared_fetch_random_remote_requests_equal_the_handler(seed: int) -> None:
    rng, nodes = random.Random(seed), RemoteFetchComparison([61, 300, 2000, 1 << 20][seed])
    for _ in range(40):
        isolation, each = rng.choice([0, 0, 0, 1]), rng.choice([1, SIZE - 1, SIZE, 700, 5000])
        least = rng.choice([1, 400])
        nodes.reconnect()
        for _ in range(8):
            nodes.fetch(ask(rng.randrange(150), isolation=isolation, each=each, least=least))
    assert nodes.prepared > 30


def test_prepared_fetch_leaves_remote_reads_without_bytes_to_the_handler() -> None:
    nodes = RemoteFetchComparison()
    nodes.warm()
    nodes.repeat(ask(nodes.fixtures[0].log().local_log_start_offset, each=0))
    answer = nodes.fetch(ask(60, each=0))
    assert (nodes.prepared, answer.responses[0].partitions[0].records) == (1, b"")


def test_prepared_fetch_leaves_topic_without_tiered_storage_to_the_handler() -> None:
    nodes = RemoteFetchComparison()
    nodes.warm()
    nodes.repeat(ask(60))
    for fixture in nodes.fixtures:
        fixture.log().update_config(replace(fixture.log().config, tiering=NO_TIERING))
    answer = nodes.fetch(ask(60))
    assert (nodes.prepared, answer.responses[0].partitions[0].error_code) == (1, ErrorCode.OFFSET_OUT_OF_RANGE)
