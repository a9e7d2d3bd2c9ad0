"""Sessions of brokers by their last heartbeat.

A broker's session begins with its first heartbeat, not with its registration, and ends ``broker.session.timeout.ms``
after its last one. It is kept in the active controller's memory: a new one gives every broker that is not fenced a
whole session. Source: ``BrokerHeartbeatTracker.java``, ``ClusterControlManager.activate`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from ottla.controller.metadata.image import MetadataImage

SESSION_TIMEOUT_KEY = "broker.session.timeout.ms"
DEFAULT_SESSION_TIMEOUT_MS = 9_000
CHECKS_PER_SESSION = 8


class BrokerHeartbeatTracker:
    """Time of the last heartbeat of each broker process, by broker epoch. Times are monotonic."""

    def __init__(self, session_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        self.session_ms = session_ms
        self._last_contact_ms: dict[tuple[int, int], float] = {}

    def activate(self, image: MetadataImage, now_ms: float, own: int | None = None) -> None:
        """Give all brokers that are not fenced a full session at activation (R-277).

        ``own`` is the broker of this process: at its start the former process is gone, and its session need not expire.
        """
        live = (b for b in image.brokers.values() if not b.fenced and b.broker_id != own)
        self._last_contact_ms = {(b.broker_id, b.broker_epoch): now_ms for b in live}

    def touch(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """Record a heartbeat on arrival, before it is queued (R-276)."""
        self._last_contact_ms[(broker_id, broker_epoch)] = now_ms

    def remove(self, broker_id: int, broker_epoch: int) -> None:
        """Remove a session after a known end or a shutdown."""
        self._last_contact_ms.pop((broker_id, broker_epoch), None)

    def last_contact_ms(self, broker_id: int, broker_epoch: int) -> float | None:
        """Return the time of the last heartbeat; None without a session."""
        return self._last_contact_ms.get((broker_id, broker_epoch))

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Return True if the session of a broker's process is valid."""
        heard = self._last_contact_ms.get((broker_id, broker_epoch))
        return heard is not None and now_ms <= heard + self.session_ms

    def next_expired_broker(self, image: MetadataImage, now_ms: float) -> int | None:
        """Return a broker with an expired session; None without one.

        One at a time, so that each is fenced in sight of what fencing the one before it did. Leases of processes that
        are not registered any more, or are fenced already, are dropped.
        """
        for (broker_id, epoch), heard in list(self._last_contact_ms.items()):
            if now_ms <= heard + self.session_ms:
                continue
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.broker_epoch == epoch and not broker.fenced:
                return broker_id
            del self._last_contact_ms[(broker_id, epoch)]
        return None


class FencedSince:
    """Since when brokers are away, as far as this controller knows: it begins to count when it becomes active."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def reset(self) -> None:
        """Restart the count of all brokers."""
        self._since.clear()

    def fenced_for(self, image: MetadataImage, now_ms: float, after_ms: float) -> set[int]:
        """Return the registered brokers that have been fenced for at least that time."""
        fenced = {i for i, b in image.brokers.items() if b.fenced}
        self._since = {i: self._since.get(i, now_ms) for i in fenced}
        return {i for i, since in self._since.items() if now_ms - since >= after_ms}
