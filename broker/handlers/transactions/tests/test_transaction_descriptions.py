"""DescribeTransactions and ListTransactions."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.transactions.tests.test_txn_handlers import (
    A,
    DenyingAuthorizer,
    E,
    K,
    response_of,
)
from ottla.broker.tests.transaction_coordinator_fixture import (
    FIRST_ID,
    TransactionCoordinatorNode,
)
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest


@pytest.mark.behaviour("C-158")
def test_describe_transactions_returns_state_and_partitions() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.add(A, 0, 2)
    answer = response_of(node, K.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(["x", "nobody", ""]))
    row, absent, empty = answer.transaction_states
    assert (row.error_code, row.transaction_state, row.transaction_timeout_ms) == (0, "Ongoing", 9_000)
    assert (row.producer_id, row.producer_epoch, row.transaction_start_time_ms) == (*A, 1_000_000)
    assert [(t.topic, t.partitions) for t in row.topics] == [("t", [0, 2])]
    assert (absent.error_code, absent.transactional_id) == (E.TRANSACTIONAL_ID_NOT_FOUND, "nobody")
    assert empty.error_code == E.INVALID_REQUEST


@pytest.mark.behaviour("C-158")
@pytest.mark.parametrize(
    ("denied", "code", "topics"),
    [
        ((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID), E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0),
        ((AclOperation.DESCRIBE, ResourceType.TOPIC), E.NONE, 0),
        ((AclOperation.WRITE, ResourceType.TOPIC), E.NONE, 1),
    ],
)
def test_describe_transactions_without_permission_hides_id_or_topics(denied: Any, code: ErrorCode, topics: int) -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.add(A, 0)
    node.fixture.services.authorizer = DenyingAuthorizer(denied)
    (row,) = response_of(node, K.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(["x"])).transaction_states
    assert (row.error_code, len(row.topics)) == (code, topics)


@pytest.mark.behaviour("C-158")
def test_describe_transactions_not_coordinator_returns_error() -> None:
    node = TransactionCoordinatorNode(led=False)
    (row,) = response_of(node, K.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(["x"])).transaction_states
    assert row.error_code == E.NOT_COORDINATOR


def listed(node: TransactionCoordinatorNode, version: int = 2, **filters: Any) -> Any:
    return response_of(node, K.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters))


def three() -> TransactionCoordinatorNode:
    """Return a coordinator with an ongoing, an unused and an aborted transactional id."""
    node = TransactionCoordinatorNode()
    node.init("open")
    node.add(A, 0, transactional_id="open")
    node.init("new")
    node.init("old")
    node.end((FIRST_ID + 2, 0), commits=False, transactional_id="old")
    return node


@pytest.mark.behaviour("C-159")
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["new", "old", "open"]),
        ({"state_filters": ["Ongoing"]}, ["open"]),
        ({"state_filters": ["Ongoing", "Empty"]}, ["new", "open"]),
        ({"producer_id_filters": [FIRST_ID + 2]}, ["old"]),
        ({"producer_id_filters": [FIRST_ID], "state_filters": ["Empty"]}, []),
        ({"duration_filter": 0}, ["new"]),
        ({"duration_filter": 5_000}, ["new"]),
        ({"transactional_id_pattern": "o.*"}, ["old", "open"]),
        ({"transactional_id_pattern": "o"}, []),
        ({"transactional_id_pattern": ""}, ["new", "old", "open"]),
    ],
)
def test_list_transactions_filters_select_transactions(filters: dict[str, Any], found: list[str]) -> None:
    answer = listed(three(), **filters)
    assert sorted(row.transactional_id for row in answer.transaction_states) == found
    assert (answer.error_code, answer.unknown_state_filters) == (0, [])


@pytest.mark.behaviour("C-159")
def test_list_transactions_unknown_states_are_returned_and_match_none() -> None:
    answer = listed(three(), state_filters=["ongoing", "Open", "ongoing"])
    assert (answer.unknown_state_filters, answer.transaction_states) == (["ongoing", "Open"], [])


@pytest.mark.behaviour("C-159")
def test_list_transactions_invalid_pattern_returns_error() -> None:
    assert listed(three(), transactional_id_pattern="(").error_code == E.INVALID_REGULAR_EXPRESSION


@pytest.mark.behaviour("C-159")
def test_list_transactions_omits_ids_without_describe_permission() -> None:
    node = three()
    node.fixture.services.authorizer = DenyingAuthorizer((AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID))
    assert listed(node).transaction_states == []


@pytest.mark.behaviour("C-159")
def test_list_transactions_during_load_returns_coordinator_load_in_progress() -> None:
    node = TransactionCoordinatorNode()
    node.init()
    node.transactions.on_resignation(node.replica)
    node.transactions.on_election(node.replica)  # the loading task has not run yet
    answer = node.api(K.LIST_TRANSACTIONS, 2, ListTransactionsRequest(state_filters=["Nonsense"]))
    assert (answer.error_code, answer.unknown_state_filters) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
