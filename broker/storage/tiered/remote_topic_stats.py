"""Counters of tiered storage by topic, and gauges by partition, which the metrics page exports.

Source: ``RemoteStorageMetrics.java``, ``BrokerTopicMetrics.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations


class RemoteTopicStats:
    """Counters of a topic since the start of the node: copies, deletions and fetches, their bytes and errors."""

    __slots__ = (
        "aux_state_builds",
        "aux_state_errors",
        "copied_bytes",
        "copies",
        "copy_errors",
        "delete_errors",
        "deletions",
        "fetch_errors",
        "fetched_bytes",
        "fetches",
    )

    def __init__(self) -> None:
        self.copied_bytes = self.copies = self.copy_errors = 0
        self.deletions = self.delete_errors = 0
        self.fetched_bytes = self.fetches = self.fetch_errors = 0
        self.aux_state_builds = self.aux_state_errors = 0
        """Followers that began with the remote log, and failures of it (``BuildRemoteLogAuxState``)."""

    def add(self, other: RemoteTopicStats) -> None:
        """Add the counters of another topic to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RemotePartitionGauges:
    """Gauges of a partition that this broker leads, as of the last run of its tasks: lags, remote segments, sizes."""

    __slots__ = (
        "copy_lag_bytes",
        "copy_lag_segments",
        "delete_lag_bytes",
        "delete_lag_segments",
        "metadata_count",
        "size_bytes",
    )

    def __init__(self) -> None:
        self.copy_lag_bytes = self.copy_lag_segments = 0
        """Rolled segments that are not copied."""
        self.delete_lag_bytes = self.delete_lag_segments = 0
        """Remote segments that are to be deleted."""
        self.metadata_count = self.size_bytes = 0
        """Remote segments that are known, and the bytes of those whose copy has ended, also while they are deleted."""

    def add(self, other: RemotePartitionGauges) -> None:
        """Add the gauges of another partition to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))
