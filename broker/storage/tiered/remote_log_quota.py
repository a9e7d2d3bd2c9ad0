"""Quotas of tiered storage: bytes copied and bytes read in a second, on a broker.

Source: ``RLMQuotaManager.java``, ``SimpleRate.java``, ``QuotaUtils.throttleTime`` (apache/kafka 4.3.1), KIP-956.
"""

from __future__ import annotations

from collections import deque

from ottla.env.env import Env


class RemoteLogQuota:
    """Quota of bytes copied to or read from the remote store: rate over a window of samples, and its limit.

    Used on the event loop only; it does not wait itself.
    """

    def __init__(self, env: Env, bytes_per_second: int, samples: int, window_s: int) -> None:
        """Create a quota without recorded bytes; ``samples`` of ``window_s`` seconds are kept."""
        self._env = env
        self.bytes_per_second = bytes_per_second
        """Limit; it may be changed at any time."""
        self._max_samples = samples
        self._window_ms = window_s * 1000
        self._samples: deque[list[float]] = deque()
        """Start time in ms (monotonic) and bytes of each sample."""

    def record(self, size_bytes: int) -> None:
        """Record bytes that were copied or read now; the rate may exceed the limit then."""
        now_ms = self._env.monotonic_ms()
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= self._window_ms:
            samples.append([now_ms, 0])
        samples[-1][1] += size_bytes

    def throttle_ms(self) -> int:
        """Return the time in ms to wait before the next copy or read; 0 while the rate is within the limit."""
        now_ms = self._env.monotonic_ms()
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._max_samples * self._window_ms:
            samples.popleft()
        if not samples:
            return 0
        elapsed_ms = max(now_ms - samples[0][0], self._window_ms)
        rate = sum(size for _, size in samples) * 1000 / elapsed_ms
        limit = self.bytes_per_second
        return round((rate - limit) / limit * elapsed_ms) if rate > limit else 0
