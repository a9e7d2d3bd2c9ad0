"""Requests with many rows let others run in between, and a topic asked for twice is answered once."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from ottla.broker.handlers import describe_configs, describe_topic_partitions, find_coordinator, metadata
from ottla.broker.server.dispatch import Context
from ottla.broker.tests.world import Hurried, Stage, topic_id_of, virtually
from ottla.broker.turn import Turn
from ottla.wire.apis import ApiKey
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from ottla.wire.messages.describe_topic_partitions import TopicRequest as PartitionsOf
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import ZERO_UUID, Message


def names(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


LONG: dict[str, tuple[ModuleType, ApiKey, int, Message]] = {
    "Metadata of many topics": (
        metadata,
        ApiKey.METADATA,
        12,
        MetadataRequest([MetadataRequestTopic(name=name) for name in names(100)], False),
    ),
    "Metadata of many partitions": (metadata, ApiKey.METADATA, 12, MetadataRequest(None)),
    "FindCoordinator": (find_coordinator, ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest("", 1, names(100))),
    "DescribeConfigs": (
        describe_configs,
        ApiKey.DESCRIBE_CONFIGS,
        4,
        DescribeConfigsRequest([DescribeConfigsResource(2, name) for name in names(100)]),
    ),
    "DescribeTopicPartitions": (
        describe_topic_partitions,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        DescribeTopicPartitionsRequest([PartitionsOf(name) for name in names(100)]),
    ),
}


@pytest.mark.parametrize("name", LONG)
def test_a_request_with_many_rows_takes_turns_and_is_answered_as_at_once(name: str) -> None:
    module, key, version, request = LONG[name]

    async def run() -> None:
        stage = Stage()
        stage.hosted.host("t1", partitions=100)
        context = stage.context(key, version)
        at_once = module.handle(context, request)
        assert isinstance(at_once, Message)
        context.turn = Turn(Hurried())  # type: ignore[arg-type]
        in_turns = module.handle(context, request)
        assert not isinstance(in_turns, Message), "it must rest"
        assert await in_turns == at_once

    virtually(run)


def asked(context: Context, topics: list[MetadataRequestTopic]) -> list[Any]:
    answer = metadata.handle(context, MetadataRequest(topics, False))
    return [(row.error_code, row.name) for row in answer.topics]  # type: ignore[union-attr]


def test_a_topic_that_is_asked_for_twice_is_answered_once() -> None:
    async def run() -> None:
        stage = Stage()
        stage.hosted.host("a")
        stage.hosted.host("b")
        by_name = [MetadataRequestTopic(ZERO_UUID, name) for name in ("a", "b", "a", "nowhere", "nowhere", "a")]
        assert asked(stage.context(ApiKey.METADATA, 12), by_name) == [(0, "a"), (0, "b"), (3, "nowhere")]
        by_id = [MetadataRequestTopic(topic_id_of(name), None) for name in ("b", "a", "b")]
        assert asked(stage.context(ApiKey.METADATA, 12), by_id) == [(0, "b"), (0, "a")]

    virtually(run)
