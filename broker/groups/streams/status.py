"""Status codes in StreamsGroupHeartbeat responses.

Source: ``StreamsGroupHeartbeatResponse.Status``, ``TopicConfigurationException.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from enum import IntEnum


class StreamsGroupStatus(IntEnum):
    """Code of a status in a StreamsGroupHeartbeat response."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicConfigurationException(Exception):
    """Topics of a topology are missing or do not fit it; ``status`` and ``message`` are returned to members."""

    def __init__(self, status: StreamsGroupStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
