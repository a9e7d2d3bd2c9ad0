"""Settings of tiered storage on a broker, and those of the topic `__remote_log_metadata`.

Source: ``RemoteLogManagerConfig.java``, ``TopicBasedRemoteLogMetadataManagerConfig.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple


class RemoteLogManagerConfig(NamedTuple):
    """Settings ``remote.*`` of a broker as they were at its creation; `RemoteLogManager` replaces it after a change."""

    storage_prefix: str
    """``remote.log.storage.manager.impl.prefix``."""
    metadata_prefix: str
    """``remote.log.metadata.manager.impl.prefix``."""
    metadata_listener: str
    """``remote.log.metadata.manager.listener.name``; empty: the inter-broker listener."""
    custom_metadata_max_bytes: int
    """``remote.log.metadata.custom.metadata.max.bytes``."""
    index_cache_bytes: int
    """``remote.log.index.file.cache.total.size.bytes``."""
    copier_threads: int
    """``remote.log.manager.copier.thread.pool.size``."""
    expiration_threads: int
    """``remote.log.manager.expiration.thread.pool.size``."""
    follower_threads: int
    """``remote.log.manager.follower.thread.pool.size``."""
    task_interval_ms: int
    """``remote.log.manager.task.interval.ms``."""
    reader_threads: int
    """``remote.log.reader.threads``."""
    reader_max_pending_tasks: int
    """``remote.log.reader.max.pending.tasks``."""
    copy_bytes_per_second: int
    """``remote.log.manager.copy.max.bytes.per.second``."""
    copy_quota_samples: int
    """``remote.log.manager.copy.quota.window.num``."""
    copy_quota_window_s: int
    """``remote.log.manager.copy.quota.window.size.seconds``."""
    fetch_bytes_per_second: int
    """``remote.log.manager.fetch.max.bytes.per.second``."""
    fetch_quota_samples: int
    """``remote.log.manager.fetch.quota.window.num``."""
    fetch_quota_window_s: int
    """``remote.log.manager.fetch.quota.window.size.seconds``."""
    fetch_max_wait_ms: int
    """``remote.fetch.max.wait.ms``."""
    list_offsets_timeout_ms: int
    """``remote.list.offsets.request.timeout.ms``."""


def remote_log_manager_config(get: Callable[[str], str]) -> RemoteLogManagerConfig:
    """Return the settings of tiered storage; ``get`` returns the current value of a broker setting, "" if unset."""

    def number(name: str) -> int:
        return int(get(name))

    return RemoteLogManagerConfig(
        storage_prefix=get("remote.log.storage.manager.impl.prefix"),
        metadata_prefix=get("remote.log.metadata.manager.impl.prefix"),
        metadata_listener=get("remote.log.metadata.manager.listener.name").strip().upper(),
        custom_metadata_max_bytes=number("remote.log.metadata.custom.metadata.max.bytes"),
        index_cache_bytes=number("remote.log.index.file.cache.total.size.bytes"),
        copier_threads=number("remote.log.manager.copier.thread.pool.size"),
        expiration_threads=number("remote.log.manager.expiration.thread.pool.size"),
        follower_threads=number("remote.log.manager.follower.thread.pool.size"),
        task_interval_ms=number("remote.log.manager.task.interval.ms"),
        reader_threads=number("remote.log.reader.threads"),
        reader_max_pending_tasks=number("remote.log.reader.max.pending.tasks"),
        copy_bytes_per_second=number("remote.log.manager.copy.max.bytes.per.second"),
        copy_quota_samples=number("remote.log.manager.copy.quota.window.num"),
        copy_quota_window_s=number("remote.log.manager.copy.quota.window.size.seconds"),
        fetch_bytes_per_second=number("remote.log.manager.fetch.max.bytes.per.second"),
        fetch_quota_samples=number("remote.log.manager.fetch.quota.window.num"),
        fetch_quota_window_s=number("remote.log.manager.fetch.quota.window.size.seconds"),
        fetch_max_wait_ms=number("remote.fetch.max.wait.ms"),
        list_offsets_timeout_ms=number("remote.list.offsets.request.timeout.ms"),
    )


class InvalidMetadataTopicConfig(ValueError):
    """Raised for a setting of the metadata topic that is no number, or out of its range."""


class RemoteLogMetadataTopicConfig(NamedTuple):
    """Settings of `__remote_log_metadata`: partitions, replication, retention and time-outs in ms; Kafka's defaults."""

    num_partitions: int = 50
    replication_factor: int = 3
    min_isr: int = 2
    retention_ms: int = -1
    consume_wait_ms: int = 120_000
    """Maximum wait of a write until this broker has read the record."""
    initialization_retry_ms: int = 100

    @property
    def topic_configs(self) -> dict[str, str]:
        """Topic settings, by name, with which the metadata topic is created."""
        return {
            "retention.ms": str(self.retention_ms),
            "cleanup.policy": "delete",
            "remote.storage.enable": "false",
            "min.insync.replicas": str(self.min_isr),
        }


_TOPIC_KEYS = {
    "topic.num.partitions": ("num_partitions", 1, 2**31 - 1),
    "topic.replication.factor": ("replication_factor", 1, 2**15 - 1),
    "topic.min.isr": ("min_isr", 1, 2**15 - 1),
    "topic.retention.ms": ("retention_ms", -1, 2**63 - 1),
    "consume.wait.ms": ("consume_wait_ms", 0, 2**63 - 1),
    "initialization.retry.interval.ms": ("initialization_retry_ms", 0, 2**63 - 1),
}


def parse_metadata_topic_config(
    values: Mapping[str, str], prefix: str, defaults: RemoteLogMetadataTopicConfig
) -> RemoteLogMetadataTopicConfig:
    """Return the settings of the metadata topic by the settings of the broker, with ``defaults`` for those not set.

    Args:
        values: Settings of the broker.
        prefix: Prefix of the settings of the metadata manager (``rlmm.config.``); other settings are ignored.
        defaults: Values of the settings that are not in ``values``.

    Raises:
        InvalidMetadataTopicConfig: A value is invalid.
    """
    parsed: dict[str, int] = {}
    for key, (name, least, most) in _TOPIC_KEYS.items():
        text = values.get(f"{prefix}remote.log.metadata.{key}")
        if text is None:
            continue
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most or (name == "retention_ms" and number == 0):
            raise InvalidMetadataTopicConfig(f"Invalid value {text} for configuration remote.log.metadata.{key}")
        parsed[name] = number
    return defaults._replace(**parsed)
