"""Produce requests with transactional batches: C-146, C-150, C-152. Source: ``ReplicaManager.scala`` (4.3.1)."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ottla.broker.handlers.produce import produce
from ottla.broker.tests.fake_transaction_verifier import FakeTransactionVerifier
from ottla.broker.tests.handler_fixture import HandlerFixture, resolve, run_virtual, topic_id_of
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import PIECE_BYTES, AppendOrigin
from ottla.log.producers.transaction_verification import TxnAppendContext
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch.batch_header import TRANSACTIONAL_BIT
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, build_end_transaction_batch
from ottla.wire.record_batch.records import NewRecord, build_batch

PID = 7


def verifying_fixture(*codes: ErrorCode, **settings: str) -> tuple[HandlerFixture, FakeTransactionVerifier]:
    fixture = HandlerFixture(**settings)
    fixture.hosted.host("t", partitions=3)
    fixture.hosted.host("away", leader=2, isr=(2,), replicas=(1, 2))
    coordinator = FakeTransactionVerifier(fixture.services, *codes)
    fixture.services.transaction_verifier = lambda: coordinator
    return fixture, coordinator


def data(sequence: int = 0, epoch: int = 0, pid: int = PID, *, txn: bool = True, **more: Any) -> bytearray:
    attributes = TRANSACTIONAL_BIT if txn else 0
    return make_batch(
        0, 1, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, attributes=attributes, **more
    )


def request(*parts: tuple[str, int, Any], transactional_id: str | None = "x") -> ProduceRequest:
    topics = [
        TopicProduceData(name, topic_id_of(name), [PartitionProduceData(number, raw)]) for name, number, raw in parts
    ]
    return ProduceRequest(transactional_id, -1, 1000, topics)


def send(fixture: HandlerFixture, request: ProduceRequest, version: int = 12) -> list[int]:
    answer = run_virtual(partial(resolve, produce.handle(fixture.context(ApiKey.PRODUCE, version), request)))
    return [row.error_code for topic in answer.responses for row in topic.partition_responses]


def marked(
    fixture: HandlerFixture, epoch: int, number: int = 0, kind: int = ControlRecordType.ABORT, version: int = 1
) -> None:
    raw = bytearray(build_end_transaction_batch(EndTransactionMarker(kind, 0), PID, epoch, 5))
    fixture.hosted.replicas["t", number].append(
        raw, 5, AppendOrigin.COORDINATOR, txn=TxnAppendContext(transaction_version=version)
    )


class TransactionalProduceCase(NamedTuple):
    version: int
    code: ErrorCode
    reported: ErrorCode
    requested: int = 1


RETRIED = 6
ROWS = [
    *(TransactionalProduceCase(version, ErrorCode.NONE, ErrorCode.NONE) for version in (3, 10, 11, 12, 13)),
    TransactionalProduceCase(10, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    TransactionalProduceCase(11, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    TransactionalProduceCase(12, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    *(
        TransactionalProduceCase(version, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
        for version in (10, 12)
    ),
    *(
        TransactionalProduceCase(version, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        for version in (10, 12)
    ),
    *(
        TransactionalProduceCase(11, code, ErrorCode.NOT_ENOUGH_REPLICAS)
        for code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    ),
    *(
        TransactionalProduceCase(12, code, ErrorCode.NOT_ENOUGH_REPLICAS)
        for code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    ),
    TransactionalProduceCase(12, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, 0),
    TransactionalProduceCase(11, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
    TransactionalProduceCase(12, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, RETRIED),
]


@pytest.mark.behaviour("C-146", "C-150", "P-79")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_transactional_produce_maps_verification_result(row: TransactionalProduceCase) -> None:
    fixture, coordinator = verifying_fixture(row.code)
    assert send(fixture, request(("t", 0, data())), row.version) == [row.reported]
    assert len(coordinator.requested) == row.requested
    assert all(requested.verify_only is (row.version < 12) for requested in coordinator.requested)
    assert fixture.hosted.replicas["t", 0].log.log_end_offset == (row.reported is ErrorCode.NONE)


@pytest.mark.behaviour("C-150")
def test_transactional_produce_v12_retries_concurrent_transactions_every_20_ms() -> None:
    fixture, coordinator = verifying_fixture(
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE
    )
    assert send(fixture, request(("t", 0, data())), 12) == [ErrorCode.NONE]
    first = coordinator.at_ms[0]
    assert [round(at - first) for at in coordinator.at_ms] == [0, 20, 40]


def test_transactional_produce_verifies_only_partitions_not_in_transaction() -> None:
    fixture, coordinator = verifying_fixture()
    assert send(fixture, request(("t", 0, data()), ("t", 1, data()))) == [0, 0]
    assert send(fixture, request(("t", 0, data(1)), ("t", 2, data()))) == [0, 0]
    assert send(fixture, request(("t", 0, data(2)))) == [0]
    requests = [[(t.name, t.partitions) for t in transaction.topics] for transaction in coordinator.requested]
    assert requests == [[("t", [0, 1])], [("t", [2])]]
    first = coordinator.requested[0]
    assert (first.transactional_id, first.producer_id, first.producer_epoch) == ("x", PID, 0)


@pytest.mark.parametrize("version", [11, 12])
def test_transactional_produce_does_not_verify_unauthorized_topics(version: int) -> None:
    """Otherwise a marker would be written there, and its existence would be revealed."""
    fixture = HandlerFixture()
    for name in ("t", "closed", "__consumer_offsets", "__transaction_state"):
        fixture.hosted.host(name)
    coordinator = FakeTransactionVerifier(fixture.services, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    fixture.services.transaction_verifier = lambda: coordinator
    fixture.services.authorizer = SimpleNamespace(
        decisions={},
        may=lambda peer, operation, kind, name: name != "closed",
        may_write=lambda context, name: name != "closed",
    )
    names = ("closed", "__consumer_offsets", "__transaction_state", "t")
    result = send(fixture, request(*((name, 0, data()) for name in names)), version)
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result == [ErrorCode.TOPIC_AUTHORIZATION_FAILED, invalid, invalid, ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert [[topic.name for topic in requested.topics] for requested in coordinator.requested] == [["t"]]


def test_transactional_produce_returns_result_per_partition() -> None:
    fixture, coordinator = verifying_fixture()
    marked(fixture, 5, 1, version=2)
    body = request(("t", 0, data()), ("t", 1, data()), ("away", 0, data()), ("none", 0, data()), ("t", 2, b"x" * 70))
    fenced, elsewhere, unknown = (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert send(fixture, body) == [0, fenced, elsewhere, unknown, ErrorCode.CORRUPT_MESSAGE]
    assert [(t.name, t.partitions) for t in coordinator.requested[0].topics] == [("t", [0])]


def test_transactional_produce_verified_after_abort_returns_invalid_txn_state() -> None:
    fixture, coordinator = verifying_fixture()
    coordinator.meanwhile = lambda: marked(fixture, 0)
    assert send(fixture, request(("t", 0, data())), 11) == [ErrorCode.INVALID_TXN_STATE]
    assert fixture.hosted.replicas["t", 0].log.log_end_offset == 1, "the marker alone"


def test_transactional_produce_after_resignation_appends_none() -> None:
    fixture, coordinator = verifying_fixture()
    coordinator.meanwhile = fixture.hosted.replicas["t", 0].resign
    assert send(fixture, request(("t", 0, data())), 11) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.behaviour("C-152")
def test_transactional_produce_with_two_producers_is_refused() -> None:
    fixture, coordinator = verifying_fixture()
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert send(fixture, request(("t", 0, data()), ("t", 1, data(pid=8)))) == [mapping, mapping]
    assert send(fixture, request(("t", 0, data()), ("t", 1, data(epoch=1)))) == [mapping, mapping]
    assert not coordinator.requested


def test_transactional_batch_without_transactional_id_refuses_request() -> None:
    fixture, _ = verifying_fixture()
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    body = request(("t", 0, make_batch(0)), ("t", 1, data()), transactional_id=None)
    assert send(fixture, body) == [refused, refused]
    assert not any(replica.log.log_end_offset for replica in fixture.hosted.replicas.values())


def test_produce_with_transactional_id_and_no_transactional_batch_is_not_verified() -> None:
    fixture, coordinator = verifying_fixture()
    assert send(fixture, request(("t", 0, data(txn=False)))) == [0]
    assert not coordinator.requested


@pytest.mark.behaviour("C-146")
@pytest.mark.parametrize(("version", "requested"), [(11, 0), (12, 1)])
def test_transactional_produce_without_verification_only_adds_partitions(version: int, requested: int) -> None:
    fixture, coordinator = verifying_fixture(transaction_partition_verification_enable="false")
    assert send(fixture, request(("t", 0, data())), version) == [0]
    assert len(coordinator.requested) == requested


def test_transactional_produce_of_large_batches_and_many_partitions() -> None:
    fixture, coordinator = verifying_fixture()
    replica = fixture.hosted.host("many", partitions=70, settings=LogConfig(compression_type=CompressionType.LZ4))
    items = [NewRecord(b"k", bytes(900), 5) for _ in range(2 + PIECE_BYTES // 900)]
    identity: dict[str, int] = {"producer_id": PID, "producer_epoch": 0, "base_sequence": 0}
    large = bytearray(build_batch(items, codec=CompressionType.GZIP, attributes=TRANSACTIONAL_BIT, **identity))
    parts = [PartitionProduceData(number, large if number == 3 else data()) for number in range(70)]
    request = ProduceRequest("x", -1, 1000, [TopicProduceData("many", topic_id_of("many"), parts)])
    assert send(fixture, request) == [0] * 70
    assert len(coordinator.requested) == 1
    assert replica.log.producers.ongoing_txns == {PID: 0}
    assert fixture.hosted.replicas["many", 3].log.log_end_offset == len(items)
