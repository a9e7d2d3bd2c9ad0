"""Topic configuration of a partition's log as typed values. Defaults are Kafka's.

Source: ``LogConfig.java``, ``TopicConfig.java``, ``UnifiedLog.isRemoteLogEnabled`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.wire.record_batch.compression import CompressionType

FOREVER_MS = 2**63 - 1
SAME_AS_RETENTION = -2
"""Value of a local retention setting: that of the setting for both tiers."""
LOCAL_TOPICS = frozenset(
    {
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    }
)
"""Topics that are never copied."""


class TieringConfig(NamedTuple):
    """Settings of a topic's tiered storage (KIP-405); -1 as local retention: unlimited."""

    is_enabled: bool
    """True if the log may have segments in the remote store, and so start below its first local segment."""
    has_copies: bool
    """True if rolled segments are copied, so that local ones are deleted by the limits below."""
    local_retention_ms: int
    local_retention_bytes: int


NO_TIERING = TieringConfig(is_enabled=False, has_copies=False, local_retention_ms=-1, local_retention_bytes=-1)


@dataclass(slots=True, frozen=True)
class LogConfig:
    """Effective configuration of a topic, as Kafka's ``LogConfig``; times in ms, -1 as retention: unlimited."""

    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    """Maximum reduction of ``segment_ms``, different for each segment, so that they are not rolled at the same time."""
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    max_message_bytes: int = 1_048_588
    log_append_time: bool = False
    timestamp_before_max_ms: int = FOREVER_MS
    timestamp_after_max_ms: int = 3_600_000
    compact: bool = False
    delete: bool = True
    flush_messages: int = FOREVER_MS
    """Maximum number of unflushed records: the append that reaches it is acknowledged only after a flush."""
    flush_ms: int = FOREVER_MS
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    tiering: TieringConfig = NO_TIERING
    retention_by_claimed_time: bool = False
    """Compute a segment's age from its largest timestamp even if that lies in the future, as Kafka does."""
    validate_records: bool = False
    """Validate every record of every batch, as Kafka does, not only where another setting requires it."""
    compression_type: CompressionType | None = None
    """Codec of appended batches; None keeps the producer's codec."""
    compression_level: int | None = None
    file_delete_delay_ms: int = 60_000
    min_insync_replicas: int = 1
    """Minimum ISR size for appends with acks=all and for an advance of the high watermark (KIP-966)."""
    always_validates_records: bool = field(init=False, repr=False, default=False)
    """True if a setting needs validation of every record."""
    max_segment_age_ms: int = field(init=False, repr=False, default=FOREVER_MS)
    """Age in ms at which a segment is rolled, before jitter is subtracted."""

    @property
    def local_retention(self) -> tuple[int, int]:
        """Retention of the local segments as (ms, bytes), -1 if unlimited; that of the topic if nothing is copied.

        Source: ``UnifiedLog.localRetentionMs``, ``localRetentionSize``.
        """
        if self.tiering.has_copies:
            return self.tiering.local_retention_ms, self.tiering.local_retention_bytes
        return self.retention_ms, self.retention_bytes

    def __post_init__(self) -> None:
        limits_age = self.timestamp_before_max_ms != FOREVER_MS and not self.log_append_time
        object.__setattr__(self, "always_validates_records", self.compact or self.validate_records or limits_age)
        longest_ms = min(self.max_compaction_lag_ms, self.segment_ms) if self.compact else self.segment_ms
        object.__setattr__(self, "max_segment_age_ms", longest_ms)


def topic_tiering(topic: str, get: Callable[[str], str]) -> TieringConfig:
    """Return the tiered storage settings of a topic, on a broker with tiered storage; `NO_TIERING` if it is off.

    It is off as well for compacted topics and `LOCAL_TOPICS`. ``get`` returns the effective value of a topic setting.
    """
    is_enabled = get("remote.storage.enable") == "true" and "compact" not in get("cleanup.policy").split(",")
    if not is_enabled or topic in LOCAL_TOPICS:
        return NO_TIERING
    return TieringConfig(
        is_enabled=True,
        has_copies=get("remote.log.copy.disable") != "true",
        local_retention_ms=_local_retention(get, "retention.ms"),
        local_retention_bytes=_local_retention(get, "retention.bytes"),
    )


def _local_retention(get: Callable[[str], str], name: str) -> int:
    value = int(get(f"local.{name}"))
    return int(get(name)) if value == SAME_AS_RETENTION else value
