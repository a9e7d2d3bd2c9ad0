"""Handlers of transaction APIs: checks before the coordinator, and error codes for old clients."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.tests.handler_fixture import as_decoded, resolve
from ottla.broker.tests.transaction_coordinator_fixture import (
    FIRST_ID,
    TransactionCoordinatorNode,
    run,
    wait_until_idle,
)
from ottla.broker.transactions.coordinator import TOPIC
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest

E = ErrorCode
K = ApiKey
A = (FIRST_ID, 0)


class DenyingAuthorizer:
    """Authorizer that allows everything except what a test names."""

    def __init__(self, *denied: tuple[AclOperation, ResourceType]) -> None:
        self._denied = denied
        self.decisions: dict[Any, bool] = {}

    def may(self, peer: Any, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        return (operation, resource) not in self._denied

    def may_any(self, peer: Any, operation: AclOperation, resource: ResourceType) -> bool:
        return (operation, resource) not in self._denied


def response_of(node: TransactionCoordinatorNode, key: ApiKey, version: int, request: Any) -> Any:
    out: list[Any] = []

    async def scenario() -> None:
        out.append(as_decoded(await resolve(node.api(key, version, request)), version))
        await wait_until_idle()

    run(node, scenario)
    return out[0]


def partition_codes(topics: Any) -> dict[tuple[str, int], int]:
    return {(t.name, p.partition_index): p.partition_error_code for t in topics for p in t.results_by_partition}


def adding(*topics: tuple[str, list[int]], producer: tuple[int, int] = A, name: str = "x") -> AddPartitionsToTxnRequest:
    rows = [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics]
    return AddPartitionsToTxnRequest([], name, *producer, rows)


def batch(*topics: tuple[str, list[int]], verify: bool, producer: tuple[int, int] = A) -> AddPartitionsToTxnTransaction:
    rows = [AddPartitionsToTxnTopic(topic, numbers) for topic, numbers in topics]
    return AddPartitionsToTxnTransaction("x", *producer, verify, rows)


# ---------------------------------------------------------------------- InitProducerId


@pytest.mark.behaviour("C-121")
@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (InitProducerIdRequest("x", 1_000, 5, -1), E.INVALID_REQUEST),
        (InitProducerIdRequest("x", 1_000, -1, 5), E.INVALID_REQUEST),
        (InitProducerIdRequest(None, 1_000, 5, -1), E.INVALID_REQUEST),
        (InitProducerIdRequest("", 1_000), E.INVALID_REQUEST),
        (InitProducerIdRequest("x", 0), E.INVALID_TRANSACTION_TIMEOUT),
        (InitProducerIdRequest("x", 900_001), E.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_init_producer_id_invalid_request_is_refused(request_: InitProducerIdRequest, code: ErrorCode) -> None:
    node = TransactionCoordinatorNode(led=False)
    answer = response_of(node, K.INIT_PRODUCER_ID, 5, request_)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.behaviour("C-120")
def test_init_producer_id_returns_id_and_epoch() -> None:
    answer = response_of(TransactionCoordinatorNode(), K.INIT_PRODUCER_ID, 5, InitProducerIdRequest("x", 1_000))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, *A)


@pytest.mark.behaviour("C-123")
def test_init_producer_id_with_known_id_does_not_wait_for_id_block(monkeypatch: pytest.MonkeyPatch) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.ids.remaining = 0
    answer = response_of(node, K.INIT_PRODUCER_ID, 5, InitProducerIdRequest("x", 1_000))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, FIRST_ID, 1)
    answer = response_of(node, K.INIT_PRODUCER_ID, 5, InitProducerIdRequest("new", 1_000))
    assert (answer.error_code, answer.producer_id) == (E.COORDINATOR_LOAD_IN_PROGRESS, -1)

    async def ready() -> None:
        node.ids.remaining = 1

    monkeypatch.setattr(node.ids, "wait_available", ready)
    answer = response_of(node, K.INIT_PRODUCER_ID, 5, InitProducerIdRequest("new", 1_000))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, FIRST_ID + 1, 0)
    node.transactions.on_resignation(node.replica)
    monkeypatch.undo()
    assert response_of(node, K.INIT_PRODUCER_ID, 5, InitProducerIdRequest("x", 1_000)).error_code == E.NOT_COORDINATOR


@pytest.mark.behaviour("C-121")
@pytest.mark.parametrize(("version", "code"), [(3, E.INVALID_PRODUCER_EPOCH), (4, E.PRODUCER_FENCED)])
def test_init_producer_id_fenced_error_code_by_version(version: int, code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    answer = response_of(node, K.INIT_PRODUCER_ID, version, InitProducerIdRequest("x", 1_000, FIRST_ID, 7))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)


@pytest.mark.behaviour("C-121")
@pytest.mark.parametrize(
    ("name", "denied", "code"),
    [
        ("x", [(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)], E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (
            None,
            [(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER), (AclOperation.WRITE, ResourceType.TOPIC)],
            E.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_init_producer_id_without_permission_returns_error(name: str | None, denied: Any, code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    node.fixture.services.authorizer = DenyingAuthorizer(*denied)
    assert response_of(node, K.INIT_PRODUCER_ID, 5, InitProducerIdRequest(name, 1_000)).error_code == code


@pytest.mark.behaviour("C-121", "S-339")
def test_init_producer_id_with_write_on_any_topic_is_allowed() -> None:
    node = TransactionCoordinatorNode()
    node.fixture.services.authorizer = DenyingAuthorizer((AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER))
    node.ids.try_generate = node.ids.next_id  # type: ignore[attr-defined]
    assert response_of(node, K.INIT_PRODUCER_ID, 5, InitProducerIdRequest(None, 1_000)).producer_id == FIRST_ID


# ---------------------------------------------------------------------- AddPartitionsToTxn


@pytest.mark.behaviour("C-126")
def test_add_partitions_to_txn_one_invalid_partition_refuses_all() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    request = adding(("t", [0, 1, 9]), ("gone", [0]), (TOPIC, [0]))
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, 3, request)
    assert partition_codes(answer.results_by_topic_v3_and_below) == {
        ("t", 0): E.OPERATION_NOT_ATTEMPTED,
        ("t", 1): E.OPERATION_NOT_ATTEMPTED,
        ("t", 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("gone", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC, 0): E.TOPIC_AUTHORIZATION_FAILED,
    }
    assert node.seen().partitions == frozenset()


@pytest.mark.behaviour("C-127")
def test_add_partitions_to_txn_returns_same_code_for_all_partitions() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, 3, adding(("t", [0, 2])))
    assert partition_codes(answer.results_by_topic_v3_and_below) == {("t", 0): 0, ("t", 2): 0}
    assert (node.seen().partitions, node.seen().client_transaction_version) == ({("t", 0), ("t", 2)}, 0)


@pytest.mark.behaviour("C-127")
@pytest.mark.parametrize(("version", "code"), [(1, E.INVALID_PRODUCER_EPOCH), (2, E.PRODUCER_FENCED)])
def test_add_partitions_to_txn_fenced_error_code_by_version(version: int, code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, version, adding(("t", [0]), producer=(FIRST_ID, 3)))
    assert partition_codes(answer.results_by_topic_v3_and_below) == {("t", 0): code}


@pytest.mark.behaviour("C-125")
@pytest.mark.parametrize(
    ("name", "denied", "code"),
    [
        ("", (), E.INVALID_REQUEST),
        ("x", [(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)], E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("x", [(AclOperation.WRITE, ResourceType.TOPIC)], E.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_add_partitions_to_txn_refused_before_coordinator(name: str, denied: Any, code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.fixture.services.authorizer = DenyingAuthorizer(*denied)
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, 3, adding(("t", [0]), name=name))
    assert partition_codes(answer.results_by_topic_v3_and_below) == {("t", 0): code}


@pytest.mark.behaviour("C-128")
def test_add_partitions_to_txn_batched_adds_with_version_2() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, 5, AddPartitionsToTxnRequest([batch(("t", [1]), verify=False)]))
    assert [(x.transactional_id, partition_codes(x.topic_results)) for x in answer.results_by_transaction] == [
        ("x", {("t", 1): 0})
    ]
    assert node.seen().client_transaction_version == 2


@pytest.mark.behaviour("C-129")
def test_add_partitions_to_txn_verify_only_returns_result_per_partition() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.add(A, 1)
    transactions = [batch(("t", [0, 1]), verify=True), batch(("t", [1]), verify=True, producer=(FIRST_ID, 1))]
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, 4, AddPartitionsToTxnRequest(transactions))
    assert [partition_codes(x.topic_results) for x in answer.results_by_transaction] == [
        {("t", 0): E.TRANSACTION_ABORTABLE, ("t", 1): 0},
        {("t", 1): E.PRODUCER_FENCED},
    ]


@pytest.mark.behaviour("C-125")
def test_add_partitions_to_txn_batched_requires_cluster_action() -> None:
    node = TransactionCoordinatorNode()
    node.fixture.services.authorizer = DenyingAuthorizer((AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER))
    answer = response_of(node, K.ADD_PARTITIONS_TO_TXN, 4, AddPartitionsToTxnRequest([batch(("t", [0]), verify=True)]))
    assert (answer.error_code, answer.results_by_transaction) == (E.CLUSTER_AUTHORIZATION_FAILED, [])


# ---------------------------------------------------------------------- AddOffsetsToTxn, EndTxn


def with_groups(node: TransactionCoordinatorNode) -> TransactionCoordinatorNode:
    class Groups:
        def partition_for(self, group_id: str) -> int:
            return len(group_id)

    node.fixture.services.groups = Groups()
    return node


@pytest.mark.behaviour("C-130")
def test_add_offsets_to_txn_adds_partition_of_group() -> None:
    node = with_groups(TransactionCoordinatorNode())
    node.init()
    answer = response_of(node, K.ADD_OFFSETS_TO_TXN, 4, AddOffsetsToTxnRequest("x", *A, "group"))
    assert answer.error_code == 0
    assert (node.seen().partitions, node.seen().client_transaction_version) == ({("__consumer_offsets", 5)}, 0)


@pytest.mark.behaviour("C-130")
@pytest.mark.parametrize(
    ("version", "name", "producer", "denied", "code"),
    [
        (4, "x", (FIRST_ID, 1), (), E.PRODUCER_FENCED),
        (2, "x", (FIRST_ID, 1), (), E.PRODUCER_FENCED),
        (1, "x", (FIRST_ID, 1), (), E.INVALID_PRODUCER_EPOCH),
        (4, "y", A, (), E.INVALID_PRODUCER_ID_MAPPING),
        (4, "", A, (), E.INVALID_REQUEST),
        (4, "x", A, [(AclOperation.READ, ResourceType.GROUP)], E.GROUP_AUTHORIZATION_FAILED),
        (4, "x", A, [(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)], E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_add_offsets_to_txn_invalid_returns_error(
    version: int, name: str, producer: tuple[int, int], denied: Any, code: ErrorCode
) -> None:
    node = with_groups(TransactionCoordinatorNode())
    node.init()
    node.fixture.services.authorizer = DenyingAuthorizer(*denied)
    assert (
        response_of(node, K.ADD_OFFSETS_TO_TXN, version, AddOffsetsToTxnRequest(name, *producer, "g")).error_code
        == code
    )


@pytest.mark.behaviour("C-131", "C-132", "C-133", "P-80")
@pytest.mark.parametrize(
    ("version", "outcome"), [(5, (FIRST_ID, 1)), (4, (-1, -1)), (0, (-1, -1))], ids=["v5", "v4", "v0"]
)
def test_end_txn_returns_producer_id_and_epoch_by_version(version: int, outcome: tuple[int, int]) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.add(A, 0)
    answer = response_of(node, K.END_TXN, version, EndTxnRequest("x", *A, committed=True))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, *outcome)


@pytest.mark.behaviour("C-131")
@pytest.mark.parametrize(
    ("version", "name", "epoch", "denied", "code"),
    [
        (5, "x", 7, (), E.PRODUCER_FENCED),
        (2, "x", 7, (), E.PRODUCER_FENCED),
        (1, "x", 7, (), E.INVALID_PRODUCER_EPOCH),
        (5, "", 0, (), E.INVALID_REQUEST),
        (5, "y", 0, (), E.INVALID_PRODUCER_ID_MAPPING),
        (5, "x", 0, (), E.INVALID_TXN_STATE),
        (5, "x", 0, [(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)], E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_end_txn_invalid_returns_error(version: int, name: str, epoch: int, denied: Any, code: ErrorCode) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.fixture.services.authorizer = DenyingAuthorizer(*denied)
    answer = response_of(node, K.END_TXN, version, EndTxnRequest(name, FIRST_ID, epoch, committed=True))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (code, -1, -1)
