"""DescribeProducers: C-160. Source: ``ReplicaManager.activeProducerState`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.handlers.transactions import describe_producers
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve, run_virtual
from ottla.log.log_validator import AppendOrigin
from ottla.log.tests.log_fixtures import UNVERIFIED_TXN, make_marker, make_producer_batch, make_transactional_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest


def ask(fixture: HandlerFixture, *topics: tuple[str, list[int]]) -> Any:
    request = DescribeProducersRequest([TopicRequest(name, numbers) for name, numbers in topics])
    context = fixture.context(ApiKey.DESCRIBE_PRODUCERS, 0)
    return as_decoded(run_virtual(partial(resolve, describe_producers.handle(context, request))), 0)


def test_describe_producers_returns_open_and_ended_transactions() -> None:
    fixture = HandlerFixture()
    replica = fixture.hosted.host("t")
    replica.append(make_producer_batch(5, 0), 5)
    replica.append(make_transactional_batch(6, 0), 5, AppendOrigin.CLIENT, txn=UNVERIFIED_TXN)
    replica.append(make_transactional_batch(7, 0), 5, AppendOrigin.CLIENT, txn=UNVERIFIED_TXN)
    replica.append(make_marker(7, 1, coordinator_epoch=9), 5, AppendOrigin.COORDINATOR)
    rows = ask(fixture, ("t", [0])).topics[0].partitions[0].active_producers
    found = [
        (x.producer_id, x.producer_epoch, x.last_sequence, x.coordinator_epoch, x.current_txn_start_offset)
        for x in rows
    ]
    assert found == [(5, 0, 0, -1, -1), (6, 0, 0, -1, 1), (7, 0, 0, 9, -1)]


def test_describe_producers_returns_error_per_partition() -> None:
    fixture = HandlerFixture()
    fixture.hosted.host("t")
    fixture.hosted.host("away", leader=2, isr=(2,), replicas=(1, 2))
    answer = ask(fixture, ("t", [0, 7]), ("none", [0]), ("away", [0]), ("no topic", [0, 1]))
    response = [[(row.partition_index, row.error_code) for row in topic.partitions] for topic in answer.topics]
    unknown, bad = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert response == [
        [(0, 0), (7, unknown)],
        [(0, unknown)],
        [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)],
        [(0, bad), (1, bad)],
    ]
