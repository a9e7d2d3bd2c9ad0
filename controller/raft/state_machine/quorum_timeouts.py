"""Timeouts of the quorum (``controller.quorum.*``)."""

from __future__ import annotations

from typing import NamedTuple


class QuorumTimeouts(NamedTuple):
    """Kafka's settings ``controller.quorum.*`` and constants, milliseconds but for the last."""

    election_ms: float = 1000
    fetch_ms: float = 2000
    backoff_max_ms: float = 1000
    retry_ms: float = 20
    max_wait_ms: int = 500
    request_ms: float = 2000
    fetch_bytes: int = 1024 * 1024
    """So much of the log is asked for at a time, a batch at least."""

    @property
    def check_quorum_ms(self) -> float:
        """Time after which a leader without a majority resigns (R-228)."""
        return self.fetch_ms * 1.5


DEFAULT_TIMEOUTS = QuorumTimeouts()
