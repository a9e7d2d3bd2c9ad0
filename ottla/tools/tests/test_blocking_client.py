"""Blocking client with fake brokers: reads while leaders move."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.client.cluster_client import ClusterClient
from ottla.client.tests.fake_brokers import FakeCluster, run_coroutine
from ottla.tools.blocking_client import BlockingClient
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import fetch, list_offsets
from ottla.wire.record_batch import records

LAGGING = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class BlockingClientFixture:
    """Client of a fake cluster whose one partition has one record; the next requests get the errors in ``errors``."""

    def __init__(self, *errors: ErrorCode) -> None:
        self.errors = list(errors)
        self.brokers = FakeCluster(list_offsets=self.list_offsets, fetch=self.fetch)
        self.brokers.leaders = {0: 0}
        self.client = BlockingClient("b0:9000")
        env: Any = SimpleNamespace(monotonic_ms=lambda: 1000 * sum(self.brokers.slept), sleep=self.brokers.sleep)
        self.client._env = env
        self.client._run = self.run  # type: ignore[method-assign]

    def run(self, work: Callable[[ClusterClient], Awaitable[Any]]) -> Any:
        return run_coroutine(work(self.brokers.client()))  # type: ignore[arg-type]

    def next_error(self) -> int:
        return self.errors.pop(0) if self.errors else 0

    def list_offsets(self, request: Any, _version: int) -> Message:
        offset = 0 if request.topics[0].partitions[0].timestamp == -2 else 1
        row = list_offsets.ListOffsetsPartitionResponse(0, self.next_error(), offset=offset)
        return list_offsets.ListOffsetsResponse(topics=[list_offsets.ListOffsetsTopicResponse("t", [row])])

    def fetch(self, _request: Any, _version: int) -> Message:
        raw = records.build_batch([records.NewRecord(None, b"v", 5)])
        row = fetch.PartitionData(0, self.next_error(), records=raw)
        return fetch.FetchResponse(responses=[fetch.FetchableTopicResponse("t", partitions=[row])])


@pytest.mark.parametrize("errors", [(LAGGING, MOVED), (0, 0, MOVED), (0, ErrorCode.LEADER_NOT_AVAILABLE)])
def test_records_are_read_again_while_a_leader_moves(errors: tuple[ErrorCode, ...]) -> None:
    fixture = BlockingClientFixture(*errors)
    assert [record.value for record in fixture.client.records("t")] == [b"v"]
    assert fixture.brokers.slept == [0.05, 0.1][: sum(map(bool, errors))]


@pytest.mark.parametrize("error", [LAGGING, MOVED])
def test_expect_goes_on_while_a_leader_moves_until_its_timeout(error: ErrorCode) -> None:
    assert len(BlockingClientFixture(error, error).client.expect("t", 1)) == 1
    fixture = BlockingClientFixture(*[MOVED] * 999)
    with pytest.raises(ProtocolError, match="NOT_LEADER_OR_FOLLOWER"):
        fixture.client.expect("t", 1, timeout_s=2)
    assert sum(fixture.brokers.slept) == pytest.approx(2, abs=0.03)


def test_records_other_error_is_raised_at_once() -> None:
    fixture = BlockingClientFixture(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(ProtocolError, match="TOPIC_AUTHORIZATION_FAILED"):
        fixture.client.records("t")
    assert fixture.brokers.slept == []
