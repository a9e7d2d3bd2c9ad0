"""Settings of the metadata log: snapshots, retention and segments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class MetadataLogConfig(NamedTuple):
    """Settings of the metadata log, as Kafka's ``metadata.*``; sizes in bytes, times in ms."""

    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_ms: int = 3_600_000
    """Maximum age of a snapshot before a new one is written; 0: new snapshots by size only."""
    retention_bytes: int = 104_857_600
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000

    @classmethod
    def from_config(cls, values: Mapping[str, str]) -> MetadataLogConfig:
        """Return the settings from a node's configuration; a missing one has Kafka's default."""
        names = {
            "snapshot_bytes": "metadata.log.max.record.bytes.between.snapshots",
            "snapshot_ms": "metadata.log.max.snapshot.interval.ms",
            "retention_bytes": "metadata.max.retention.bytes",
            "retention_ms": "metadata.max.retention.ms",
            "segment_bytes": "metadata.log.segment.bytes",
            "segment_ms": "metadata.log.segment.ms",
        }
        return cls(**{field: int(values[name]) for field, name in names.items() if name in values})
