"""Settings of tiered storage (KIP-405) as typed values.

Source: ``RemoteLogManagerConfig.java``, ``LogConfig.RemoteLogConfig``, ``UnifiedLog.isRemoteLogEnabled`` (apache/kafka
4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.log.log_config import NO_TIERING, TieringConfig

TIERED_STORAGE_ENABLE = "remote.log.storage.system.enable"
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


def topic_tiering(topic: str, get: Callable[[str], str]) -> TieringConfig:
    """Return the tiered storage of a topic on a broker that has it enabled; ``get`` returns a topic setting."""
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
