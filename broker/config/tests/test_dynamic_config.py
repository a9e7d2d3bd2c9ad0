"""Stored configs that cannot be parsed or applied never end a broker: the default or the former value applies."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.config.dynamic_config import _log_rejected, log_invalid_stored_value
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.groups.settings import (
    read_consumer_group_settings,
    read_share_group_settings,
    read_streams_group_settings,
)
from ottla.broker.observability.client_metrics_subscriptions import read_subscriptions
from ottla.broker.quotas.replication_quota import FOLLOWER, LEADER, ReplicationQuota
from ottla.controller.config.config_keys import (
    GROUP_KEYS,
    INTERNAL_TOPIC_KEYS,
    OWN_TOPIC_KEYS,
    TOPIC_KEYS,
    valid_canonical_value,
)
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.partitions.leader_and_isr_updates import topic_change_rules
from ottla.jobs.job import run_to_end
from ottla.wire.messages import metadata_records

ODD = (
    "",
    "x",
    "NaN",
    "0.5f",
    "-1",
    "-99",
    "\u00b2",
    "1_0",
    "99999999999999999999",
    "\x00",
    "a,,b",
    "0:1:2",
    "9" * 5_000,
)


def image_of(*rows: tuple[int, str, str, str]) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    draft.replay(metadata_records.TopicRecord("t", bytes([9] * 16)))
    draft.replay(metadata_records.PartitionRecord(0, bytes([9] * 16), [1, 2], [1], [], [], 1, 0, 0, 0, [bytes(16)] * 2))
    for row in rows:
        draft.replay(metadata_records.ConfigRecord(*row))
    return run_to_end(draft.image(1, 1))


@pytest.fixture(autouse=True)
def nothing_was_logged() -> None:
    log_invalid_stored_value.cache_clear()
    _log_rejected.cache_clear()


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("name", [*TOPIC_KEYS, *INTERNAL_TOPIC_KEYS, *OWN_TOPIC_KEYS])
def test_any_stored_topic_config_value_yields_settings(name: str, value: str) -> None:
    key = TOPIC_KEYS.get(name)
    rows = [(RESOURCE_TOPIC, "t", name, value)]
    if key is not None and key.broker_key is not None:
        rows += [(RESOURCE_BROKER, "", key.broker_key, value), (RESOURCE_BROKER, "1", key.broker_key, value)]
    image = image_of(*rows)
    NodeConfig().log_settings(image, "t")
    topic_change_rules(image, {}, image.topics["t"])
    for side in (LEADER, FOLLOWER):
        ReplicationQuota(side, 1).is_throttled(image, "t", 0)


@pytest.mark.parametrize("value", ODD)
def test_any_stored_group_or_quota_config_value_yields_settings(value: str) -> None:
    config = NodeConfig()
    bounded = {
        **read_consumer_group_settings(config).bounded_settings,
        **read_share_group_settings(config).bounded_settings,
        **read_streams_group_settings(config).bounded_settings,
    }
    for name in GROUP_KEYS:
        if name in bounded:
            assert bounded[name].minimum <= bounded[name].effective_value(value) <= bounded[name].maximum
    rows = [(RESOURCE_CLIENT_METRICS, "m", name, value) for name in ("interval.ms", "metrics", "match")]
    (subscription,) = read_subscriptions(image_of(*rows))
    assert subscription.interval_ms >= 100
    rate = image_of((RESOURCE_BROKER, "", "leader.replication.throttled.rate", value))
    ReplicationQuota(LEADER, 1).bytes_per_second(rate)
    assert image_of((RESOURCE_GROUP, "g", "share.isolation.level", value))


def test_invalid_stored_topic_config_is_logged_once_and_default_used(caplog: pytest.LogCaptureFixture) -> None:
    image = image_of((RESOURCE_TOPIC, "t", "retention.ms", "soon"), (RESOURCE_TOPIC, "t", "segment.bytes", "5"))
    config = NodeConfig({"log.retention.ms": "7000"})
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            settings = config.log_settings(image, "t")
    assert (settings.retention_ms, settings.segment_bytes) == (7000, 1 << 30)
    assert [r.getMessage() for r in caplog.records if "retention.ms" in r.getMessage()] == [
        "Invalid value of a stored config: retention.ms='soon' of topic 't' (using the default)"
    ]


def test_java_number_spellings_are_parsed_as_in_java() -> None:
    image = image_of(
        (RESOURCE_TOPIC, "t", "min.cleanable.dirty.ratio", "0.25f"),
        (RESOURCE_TOPIC, "t", "retention.ms", "+\uff15"),
        (RESOURCE_TOPIC, "t", "internal.segment.bytes", " 100 "),
    )
    settings = NodeConfig().log_settings(image, "t")
    assert (settings.min_cleanable_dirty_ratio, settings.retention_ms, settings.segment_bytes) == (0.25, 5, 100)


@pytest.mark.parametrize("broker", ["", "1"])
def test_stored_broker_config_breaking_a_rule_keeps_former_value(broker: str, caplog: pytest.LogCaptureFixture) -> None:
    config = NodeConfig()
    kept = image_of((RESOURCE_BROKER, broker, "log.retention.ms", "5000"))
    assert config.effective_value(kept, "log.retention.ms") == "5000"
    broken = image_of((RESOURCE_BROKER, broker, "log.retention.ms", "0"))
    with caplog.at_level(logging.ERROR):
        assert config.log_settings(broken, "t").retention_ms == 5000
        assert NodeConfig().log_settings(broken, "t").retention_ms == 604_800_000, "also at its start"
    assert "could not be applied: requirement failed: log.retention.ms must be unlimited" in caplog.text


def test_stored_config_that_is_not_dynamic_is_not_applied() -> None:
    image = image_of((RESOURCE_BROKER, "", "num.partitions", "7"), (RESOURCE_BROKER, "", "cordoned.log.dirs", "*"))
    assert NodeConfig().effective_value(image, "num.partitions") == "1"
    assert NodeConfig().effective_value(image, "cordoned.log.dirs") == ""


def test_per_broker_config_overrides_cluster_default_and_unit_precedence() -> None:
    image = image_of((RESOURCE_BROKER, "", "log.retention.ms", "5"), (RESOURCE_BROKER, "1", "log.retention.ms", "-7"))
    assert NodeConfig().effective_value(image, "log.retention.ms") == "-7"
    assert NodeConfig().log_settings(image, "t").retention_ms == -1, "without a limit, as in Kafka"
    assert NodeConfig(node_id=2).effective_value(image, "log.retention.ms") == "5"


def test_effective_broker_configs_are_parsed_once_for_all_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    config, image = NodeConfig(), image_of((RESOURCE_BROKER, "", "log.retention.ms", "60000"))
    assert config.log_settings(image, "t").retention_ms == 60_000
    parsed = []
    monkeypatch.setattr(
        "ottla.broker.config.node_config.valid_canonical_value",
        lambda key, value: parsed.append(key) or valid_canonical_value(key, value),
    )
    assert config.log_settings(image, "other").retention_ms == 60_000
    assert not parsed
    image = image_of(
        (RESOURCE_BROKER, "", "log.retention.ms", "60000"), (RESOURCE_BROKER, "1", "log.retention.ms", "7")
    )
    assert config.log_settings(image, "t").retention_ms == 7
    assert config.log_settings(MetadataImage(), "t").retention_ms == 604_800_000
