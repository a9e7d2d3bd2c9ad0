"""Timeouts and limits of the Raft protocol (``controller.quorum.*`` and constants of Kafka)."""

from __future__ import annotations

from typing import NamedTuple


class QuorumTimeouts(NamedTuple):
    """Timeouts of the Raft protocol in ms, and the fetch limit: ``controller.quorum.*`` settings, Kafka's constants."""

    election_ms: float = 1000
    fetch_ms: float = 2000
    backoff_max_ms: float = 1000
    retry_ms: float = 20
    max_wait_ms: int = 500
    request_ms: float = 2000
    fetch_bytes: int = 1024 * 1024
    """Maximum bytes in a Fetch response; the first batch is returned even if it is larger."""

    @property
    def check_quorum_ms(self) -> float:
        """Time in ms after which a leader without fetches of a majority of the voters resigns (R-228)."""
        return self.fetch_ms * 1.5


DEFAULT_TIMEOUTS = QuorumTimeouts()
