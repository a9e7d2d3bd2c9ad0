"""Settings of tiered storage and of its metadata topic."""

from __future__ import annotations

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.startup_checks import check_startup_values
from ottla.broker.storage.tiered.remote_log_manager_config import (
    InvalidMetadataTopicConfig,
    RemoteLogMetadataTopicConfig,
    parse_metadata_topic_config,
    remote_log_manager_config,
)

DEFAULTS = RemoteLogMetadataTopicConfig()


def test_defaults_are_those_of_kafka() -> None:
    settings = remote_log_manager_config(NodeConfig().text)
    assert settings.storage_prefix == "rsm.config."
    assert settings.metadata_prefix == "rlmm.config."
    assert settings.metadata_listener == ""
    assert (settings.copier_threads, settings.expiration_threads, settings.reader_threads) == (10, 10, 10)
    assert (settings.task_interval_ms, settings.reader_max_pending_tasks) == (30_000, 100)
    assert settings.copy_bytes_per_second == settings.fetch_bytes_per_second == 2**63 - 1
    assert settings.custom_metadata_max_bytes == 128
    assert (settings.fetch_max_wait_ms, settings.list_offsets_timeout_ms) == (500, 30_000)


def test_metadata_topic_has_the_settings_with_the_prefix() -> None:
    values = {
        "rlmm.config.remote.log.metadata.topic.num.partitions": "5",
        "rlmm.config.remote.log.metadata.topic.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.retention.ms": "70000",
        "rlmm.config.remote.log.metadata.consumer.fetch.max.wait.ms": "x",
        "remote.log.metadata.topic.num.partitions": "6",
    }
    config = parse_metadata_topic_config(values, "rlmm.config.", DEFAULTS)
    assert config == DEFAULTS._replace(num_partitions=5, min_isr=1, retention_ms=70_000)
    assert config.topic_configs["min.insync.replicas"] == "1"
    assert config.topic_configs["retention.ms"] == "70000"
    assert parse_metadata_topic_config({}, "rlmm.config.", DEFAULTS).num_partitions == 50


@pytest.mark.parametrize(
    ("key", "value"), [("topic.num.partitions", "0"), ("topic.retention.ms", "0"), ("consume.wait.ms", "x")]
)
def test_invalid_setting_of_the_metadata_topic_is_rejected_by_name(key: str, value: str) -> None:
    with pytest.raises(InvalidMetadataTopicConfig, match=f"remote.log.metadata.{key}"):
        parse_metadata_topic_config({f"rlmm.config.remote.log.metadata.{key}": value}, "rlmm.config.", DEFAULTS)


RANGES = [
    ("topic.num.partitions", "num_partitions", 1, 2**31 - 1, 50),
    ("topic.replication.factor", "replication_factor", 1, 2**15 - 1, 3),
    ("topic.min.isr", "min_isr", 1, 2**15 - 1, 2),
    ("topic.retention.ms", "retention_ms", -1, 2**63 - 1, -1),
    ("consume.wait.ms", "consume_wait_ms", 0, 2**63 - 1, 120_000),
    ("initialization.retry.interval.ms", "initialization_retry_ms", 0, 2**63 - 1, 100),
]
"""Settings of the metadata topic, with Kafka's least and greatest values, and defaults."""


@pytest.mark.parametrize(("key", "field", "least", "most", "default"), RANGES)
def test_setting_of_the_metadata_topic_has_the_range_and_default_of_kafka(
    key: str, field: str, least: int, most: int, default: int
) -> None:
    def parse(value: int) -> int:
        values = {f"p.remote.log.metadata.{key}": str(value)}
        number: int = getattr(parse_metadata_topic_config(values, "p.", DEFAULTS), field)
        return number

    assert getattr(DEFAULTS, field) == default
    assert [parse(least), parse(most)] == [least, most]
    for value in (least - 1, most + 1):
        with pytest.raises(InvalidMetadataTopicConfig, match=f"Invalid value {value} "):
            parse(value)


def test_settings_of_store_and_metadata_topic_are_known_with_tiered_storage_only() -> None:
    values = {"rsm.config.url": "file:///store", "rlmm.config.remote.log.metadata.topic.min.isr": "1"}
    assert len(check_startup_values(values)) == 2
    values["remote.log.storage.system.enable"] = "true"
    assert check_startup_values(values) == []
    values["remote.log.storage.manager.impl.prefix"] = "store."
    assert check_startup_values(values) == ["unknown setting 'rsm.config.url'"]
