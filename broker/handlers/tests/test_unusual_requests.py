"""Requests that no client sends, compared with recorded responses of Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.handlers.admin import describe_configs, describe_topic_partitions, metadata
from ottla.broker.handlers.offsets import list_offsets
from ottla.broker.handlers.security import describe_acls
from ottla.broker.tests.handler_fixture import HandlerFixture, run_virtual, start, topic_id_of
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.messages.describe_acls import DescribeAclsRequest
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

A, NOBODYS = topic_id_of("a"), b"n" * 16
Topic = MetadataRequestTopic


def answered(module: Any, key: ApiKey, version: int, request: Message) -> Any:
    out: list[Any] = []

    async def run() -> None:
        fixture = HandlerFixture()
        fixture.hosted.host("a")
        fixture.hosted.host("b")
        out.append(start(module.handle(fixture.context(key, version), request)))

    run_virtual(run)
    return out[0]


@pytest.mark.parametrize(
    ("version", "topics", "rows"),
    [
        (10, [Topic(NOBODYS, "a")], [(ErrorCode.INVALID_REQUEST, "a", NOBODYS)]),
        (
            11,
            [Topic(ZERO_UUID, "b"), Topic(A, "a")],
            [(ErrorCode.INVALID_REQUEST, "b", ZERO_UUID), (ErrorCode.INVALID_REQUEST, "a", A)],
        ),
        (11, [Topic(ZERO_UUID, None)], [(ErrorCode.INVALID_REQUEST, "", ZERO_UUID)]),
        (12, [Topic(A, "other"), Topic(ZERO_UUID, "b")], [(ErrorCode.NONE, "a", A)]),
        (
            13,
            [Topic(NOBODYS, "a"), Topic(A, None)],
            [(ErrorCode.UNKNOWN_TOPIC_ID, None, NOBODYS), (ErrorCode.NONE, "a", A)],
        ),
    ],
    ids=["room for ids only", "one of them", "no name", "ids count", "ids alone"],
)
def test_metadata_topics_with_name_and_id_are_refused_by_version(
    version: int, topics: list[Topic], rows: list[Any]
) -> None:
    answer = answered(metadata, ApiKey.METADATA, version, MetadataRequest(topics, False))
    assert [(row.error_code, row.name, row.topic_id) for row in answer.topics] == rows
    is_refused = version < 12
    assert bool(answer.brokers) is not is_refused
    assert (answer.cluster_id, answer.controller_id) == (None, -1) if is_refused else answer.cluster_id == "cluster"


@pytest.mark.parametrize(
    ("topics", "cursor", "rows"),
    [
        (["a", "b"], ("c", 0), [(ErrorCode.INVALID_REQUEST, "a"), (ErrorCode.INVALID_REQUEST, "b")]),
        (["a", "b"], ("b", -1), [(ErrorCode.INVALID_REQUEST, "a"), (ErrorCode.INVALID_REQUEST, "b")]),
        (["a", "b"], ("b", 0), [(ErrorCode.NONE, "b")]),
        ([], ("aa", 0), [(ErrorCode.NONE, "b")]),
        ([], ("a", -1), []),
    ],
    ids=["not among them", "no partition", "among them", "of all", "of all, no partition"],
)
def test_describe_topic_partitions_cursor_must_match_a_topic(
    topics: list[str], cursor: tuple[str, int], rows: list[Any]
) -> None:
    at = DescribeTopicPartitionsRequestCursor(*cursor)
    request = DescribeTopicPartitionsRequest([TopicRequest(name) for name in topics], 10, at)
    answer = answered(describe_topic_partitions, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert [(row.error_code, row.name) for row in answer.topics] == rows
    assert answer.next_cursor is None


def test_describe_configs_unknown_resource_type_refuses_whole_request() -> None:
    requests = [DescribeConfigsResource(3, "x"), DescribeConfigsResource(2, "a", ["retention.ms"])]
    answer = answered(describe_configs, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(requests))
    assert [(row.error_code, row.resource_type, row.configs) for row in answer.results] == [
        (ErrorCode.INVALID_REQUEST, 3, []),
        (ErrorCode.INVALID_REQUEST, 2, []),
    ]
    assert {row.error_message for row in answer.results} == {ErrorCode.INVALID_REQUEST.text}
    known = answered(describe_configs, ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(requests[1:]))
    assert [(row.error_code, len(row.configs)) for row in known.results] == [(ErrorCode.NONE, 1)]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (4, "abc", "Broker id must be an integer, but it is: abc"),
        (4, "77", "Unexpected broker id, expected 1 or empty string, but received 77"),
        (16, "", "Client metrics subscription name must not be empty"),
        (32, "", "Group name must not be empty"),
    ],
)
def test_describe_configs_wrong_resource_name_returns_message(kind: int, name: str, message: str) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name)])
    result = answered(describe_configs, ApiKey.DESCRIBE_CONFIGS, 4, request).results[0]
    assert (result.error_code, result.error_message, result.configs) == (ErrorCode.INVALID_REQUEST, message, [])


@pytest.mark.parametrize(
    ("level", "code"), [(-1, ErrorCode.UNKNOWN_SERVER_ERROR), (0, 0), (1, 0), (2, ErrorCode.UNKNOWN_SERVER_ERROR)]
)
def test_list_offsets_unknown_isolation_level_returns_unknown_server_error(level: int, code: int) -> None:
    requested = ListOffsetsTopic("a", [ListOffsetsPartition(0, -1, -1)])
    answer = answered(list_offsets, ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(-1, level, [requested]))
    assert [part.error_code for part in answer.topics[0].partitions] == [code]


@pytest.mark.parametrize("field", ["resource_type_filter", "pattern_type_filter", "operation", "permission_type"])
def test_describe_acls_unknown_enum_closes_connection_and_other_code_does_not(field: str) -> None:
    request = DescribeAclsRequest(2, "a", 3, None, None, 3, 3)
    setattr(request, field, 0)
    with pytest.raises(WireError, match="UNKNOWN"):
        answered(describe_acls, ApiKey.DESCRIBE_ACLS, 2, request)
    setattr(request, field, 85)
    assert answered(describe_acls, ApiKey.DESCRIBE_ACLS, 2, request).error_code == ErrorCode.SECURITY_DISABLED
