"""Status of a streams group in heartbeat responses, besides tasks and errors.

Source: ``StreamsGroupHeartbeatResponse.Status``, ``TopicConfigurationException.java`` (apache/kafka 4.3.1), KIP-1071.
"""

from __future__ import annotations

from enum import IntEnum


class StreamsGroupStatus(IntEnum):
    """The codes of an answer's status."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class TopicConfigurationException(Exception):
    """The topics there are do not fit a topology."""

    def __init__(self, status: StreamsGroupStatus, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
