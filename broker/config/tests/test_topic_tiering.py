"""Tiered storage of a topic's logs, from the settings of node and topic."""

from __future__ import annotations

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.controller.metadata.image import RESOURCE_TOPIC, MetadataImage
from ottla.log.log_config import NO_TIERING, TieringConfig

ENABLED = {"remote.log.storage.system.enable": "true"}
TIERED = {"remote.storage.enable": "true", "retention.ms": "5000", "retention.bytes": "6000"}


def tiering(values: dict[str, str], node: dict[str, str] | None = None, topic: str = "t") -> TieringConfig:
    image = MetadataImage(configs={(RESOURCE_TOPIC, topic): values})
    return NodeConfig(ENABLED if node is None else node).log_settings(image, topic).tiering


def test_topic_is_tiered_on_a_node_with_tiered_storage_only() -> None:
    assert tiering(TIERED, {}) is NO_TIERING
    assert tiering({}) is NO_TIERING
    assert tiering(TIERED) == TieringConfig(True, True, 5000, 6000)


def test_local_retention_is_that_of_topic_or_node_else_the_retention() -> None:
    assert tiering({**TIERED, "local.retention.ms": "7"})[2:] == (7, 6000)
    assert tiering({**TIERED, "local.retention.bytes": "8"})[2:] == (5000, 8)
    assert tiering(TIERED, {**ENABLED, "log.local.retention.ms": "9"})[2:] == (9, 6000)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__remote_log_metadata"])
def test_internal_and_compacted_topics_are_never_tiered(topic: str) -> None:
    assert tiering(TIERED, topic=topic) is NO_TIERING
    assert tiering({**TIERED, "cleanup.policy": "compact"}) is NO_TIERING


def test_copies_end_with_copy_disable() -> None:
    assert tiering({**TIERED, "remote.log.copy.disable": "true"})[:2] == (True, False)
