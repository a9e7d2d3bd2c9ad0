"""Replication quotas: limit in bytes per second for out-of-sync replicas of the throttled partitions (KIP-73).

There is one for leaders and one for followers, each with a rate of the broker and a list of throttled replicas of each
topic, as `kafka-reassign-partitions --throttle` sets them. The callers throttle out-of-sync replicas only: a leader
those outside the ISR, a follower its own that lack committed records. The quota for moves between log directories
(`alter_log_dirs`) has only a rate.

Source: ``ReplicationQuotaManager.java``, ``ReplicaManager.shouldLeaderThrottle``, ``RemoteLeaderEndPoint.scala``
(apache/kafka 4.3.1); KIP-73.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ottla.controller.config.config_keys import broker_key, topic_key, valid_canonical_value
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage

SAMPLES = 11
SAMPLE_MS = 1000
LEADER, FOLLOWER = "leader", "follower"
ALL_REPLICAS = "*"


class ReplicationQuota:
    """Replication quota of a broker as leader or as follower (``side``), or of moves; ``now_ms`` is monotonic.

    ``rate_key``: setting with the limit, if it is not that of the side.
    """

    def __init__(self, side: str, node_id: int, rate_key: str | None = None) -> None:
        self._rate_key = rate_key or f"{side}.replication.throttled.rate"
        self._list_key = f"{side}.replication.throttled.replicas"
        self._node_id = str(node_id)
        self._samples: deque[list[float]] = deque()
        """Start time in ms and bytes of each one-second sample."""
        self._throttled_replicas: dict[str, tuple[Mapping[str, str], frozenset[int] | None]] = {}

    def bytes_per_second(self, image: MetadataImage) -> int | None:
        """Return the limit by the dynamic settings of this broker, else of all brokers; None without a valid one."""
        for name in (self._node_id, ""):
            text = image.config(RESOURCE_BROKER, name).get(self._rate_key)
            rate = None if text is None else valid_canonical_value(broker_key(self._rate_key), text)
            if rate is not None:
                return int(rate)
        return None

    def is_throttled(self, image: MetadataImage, topic: str, partition: int) -> bool:
        """Return True if the topic's list of throttled replicas names this broker for the partition, or is ``*``."""
        config = image.config(RESOURCE_TOPIC, topic)
        known = self._throttled_replicas.get(topic)
        if known is None or known[0] is not config:
            known = self._throttled_replicas[topic] = config, self._parse_replicas(config.get(self._list_key, ""))
        return known[1] is None or partition in known[1]

    def _parse_replicas(self, text: str) -> frozenset[int] | None:
        """Return the partitions of this broker in a list such as ``0:101,0:102,1:102``; None for all (``*``).

        A list that is invalid has no partitions.
        """
        replicas = valid_canonical_value(topic_key(self._list_key), text) or ""
        if "".join(x.strip() for x in replicas.split(",")) == ALL_REPLICAS:
            return None
        pairs = (part.strip().partition(":") for part in replicas.split(","))
        return frozenset(int(number) for number, _, broker in pairs if broker == self._node_id)

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Record replicated bytes of a throttled partition."""
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size_bytes

    def is_exceeded(self, image: MetadataImage, now_ms: float) -> bool:
        """Return True if the rate of the last eleven seconds is above the limit; False without a limit (R-341)."""
        rate = self.bytes_per_second(image)
        if rate is None:
            return False
        samples = self._samples
        while samples and now_ms - samples[0][0] >= SAMPLES * SAMPLE_MS:
            samples.popleft()
        if not samples:
            return False
        elapsed_ms = max(now_ms - samples[0][0], SAMPLE_MS)
        return sum(size for _, size in samples) * 1000 / elapsed_ms > rate
