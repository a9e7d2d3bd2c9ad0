"""Sessions of brokers, which expire without heartbeats.

A broker's session begins with its first heartbeat, not with its registration, and expires ``broker.session.timeout.ms``
after its last one. It is in the active controller's memory: a new one gives every unfenced broker a full session.
Source: ``BrokerHeartbeatTracker.java``, ``ClusterControlManager.activate`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from ottla.controller.metadata.image import MetadataImage

SESSION_TIMEOUT_KEY = "broker.session.timeout.ms"
DEFAULT_SESSION_TIMEOUT_MS = 9_000
CHECKS_PER_SESSION = 8


class BrokerHeartbeatTracker:
    """Monotonic time of the last heartbeat of each broker process, by broker id and broker epoch."""

    def __init__(self, session_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        self.session_ms = session_ms
        self._last_contact_ms: dict[tuple[int, int], float] = {}

    def activate(self, image: MetadataImage, now_ms: float, own: int | None = None) -> None:
        """Start a full session for all unfenced brokers at activation of the controller (R-277).

        ``own`` is the id of the broker in this process, or None. It gets no session: its former process has ended, and
        it registers again.
        """
        live = (b for b in image.brokers.values() if not b.fenced and b.broker_id != own)
        self._last_contact_ms = {(b.broker_id, b.broker_epoch): now_ms for b in live}

    def touch(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """Record a heartbeat on arrival, before it is queued (R-276)."""
        self._last_contact_ms[(broker_id, broker_epoch)] = now_ms

    def remove(self, broker_id: int, broker_epoch: int) -> None:
        """Remove the session of a broker that ended or may shut down, so that it can register again at once."""
        self._last_contact_ms.pop((broker_id, broker_epoch), None)

    def last_contact_ms(self, broker_id: int, broker_epoch: int) -> float | None:
        """Return the monotonic time in ms of the last heartbeat; None without a session."""
        return self._last_contact_ms.get((broker_id, broker_epoch))

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Return True if a broker process has a session that has not expired."""
        contact_ms = self._last_contact_ms.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms <= contact_ms + self.session_ms

    def next_expired_broker(self, image: MetadataImage, now_ms: float) -> int | None:
        """Return the id of a broker whose session has expired and that has to be fenced; None if there is none.

        One at a time, since fencing one changes the image for the next. Expired sessions of brokers that are registered
        with another epoch, or fenced already, are removed.
        """
        for (broker_id, epoch), contact_ms in list(self._last_contact_ms.items()):
            if now_ms <= contact_ms + self.session_ms:
                continue
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.broker_epoch == epoch and not broker.fenced:
                return broker_id
            del self._last_contact_ms[(broker_id, epoch)]
        return None


class FencedSince:
    """Times since when brokers have been fenced, as far as this controller has been active."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def reset(self) -> None:
        """Clear the times: the next `fenced_for` counts from its own time for all fenced brokers."""
        self._since.clear()

    def fenced_for(self, image: MetadataImage, now_ms: float, after_ms: float) -> set[int]:
        """Return the registered brokers that have been fenced for at least ``after_ms``, and record new ones."""
        fenced = {i for i, b in image.brokers.items() if b.fenced}
        self._since = {i: self._since.get(i, now_ms) for i in fenced}
        return {i for i, since in self._since.items() if now_ms - since >= after_ms}
