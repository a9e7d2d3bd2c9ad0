"""Counters of tiered storage by topic, and gauges by partition, which the metrics page exports.

Source: ``RemoteStorageMetrics.java``, ``BrokerTopicMetrics.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MAX_FAILURE_CHARS = 300
_COUNTERS = (
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
_NUMBERS = (
    "copy_lag_bytes",
    "copy_lag_segments",
    "delete_lag_bytes",
    "delete_lag_segments",
    "metadata_count",
    "size_bytes",
)


class RemoteFailure(NamedTuple):
    """Failure of the remote store: monotonic time in ms, and the message, cut after `MAX_FAILURE_CHARS`."""

    at_ms: float
    text: str


class RemoteTopicStats:
    """Counters of a topic since the start of the node: copies, deletions and fetches, their bytes and errors."""

    __slots__ = (*_COUNTERS, "failures")

    def __init__(self) -> None:
        self.copied_bytes = self.copies = self.copy_errors = 0
        self.deletions = self.delete_errors = 0
        self.fetched_bytes = self.fetches = self.fetch_errors = 0
        self.aux_state_builds = self.aux_state_errors = 0
        """Followers that began with the remote log, and failures of it (``BuildRemoteLogAuxState``)."""
        self.failures: dict[str, RemoteFailure] = {}
        """Last failure that each of the counters of errors has counted, by name of the counter."""

    def count_failure(self, counter: str, error: Exception, now_ms: float) -> None:
        """Increment a counter of errors, such as ``copy_errors``, and keep the failure.

        ``now_ms``: monotonic time in ms.
        """
        setattr(self, counter, getattr(self, counter) + 1)
        self.failures[counter] = RemoteFailure(now_ms, str(error)[:MAX_FAILURE_CHARS])

    def add(self, other: RemoteTopicStats) -> None:
        """Add the counters of another topic to these; failures are not taken over."""
        for name in _COUNTERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class RemotePartitionGauges:
    """Gauges of a partition that this broker leads, as of the last run of its tasks: lags, remote segments, sizes."""

    __slots__ = (*_NUMBERS, "_rolled_ms", "lagging_since_ms")

    def __init__(self) -> None:
        self.copy_lag_bytes = self.copy_lag_segments = 0
        """Rolled segments that are not copied."""
        self.delete_lag_bytes = self.delete_lag_segments = 0
        """Remote segments that are to be deleted."""
        self.metadata_count = self.size_bytes = 0
        """Remote segments that are known, and the bytes of those whose copy has ended, also while they are deleted."""
        self.lagging_since_ms: float | None = None
        """Monotonic time in ms since which the oldest rolled segment waits for its copy; None without any."""
        self._rolled_ms: dict[int, float] = {}
        """Time of the first measurement that found each of these segments, by base offset."""

    def set_copy_lag(self, sizes: Mapping[int, int], now_ms: float) -> None:
        """Set the copy lag. ``sizes``: bytes of the rolled segments without a copy by base offset, oldest first."""
        self.copy_lag_segments, self.copy_lag_bytes = len(sizes), sum(sizes.values())
        self._rolled_ms = {base: self._rolled_ms.get(base, now_ms) for base in sizes}
        self.lagging_since_ms = next(iter(self._rolled_ms.values()), None)

    def add(self, other: RemotePartitionGauges) -> None:
        """Add the gauges of another partition to these; the earlier begin of a lag is kept."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        begins = [x for x in (self.lagging_since_ms, other.lagging_since_ms) if x is not None]
        self.lagging_since_ms = min(begins, default=None)
