"""Sessions of brokers, which expire without heartbeats, and times since when brokers have been fenced.

A broker's session begins with its first heartbeat, not with its registration, and expires ``broker.session.timeout.ms``
after its last one. Sessions are in the active controller's memory: one that becomes active gives each unfenced broker
except its own a full session.
Source: ``BrokerHeartbeatTracker.java``, ``ClusterControlManager.activate`` (apache/kafka 4.3.1).

From KIP-631.
"""

from __future__ import annotations

from ottla.controller.metadata.image import MetadataImage

SESSION_TIMEOUT_KEY = "broker.session.timeout.ms"
DEFAULT_SESSION_TIMEOUT_MS = 9_000
CHECKS_PER_SESSION = 8


class BrokerHeartbeatTracker:
    """Sessions of brokers: monotonic time in ms of the last heartbeat, by broker id and broker epoch."""

    def __init__(self, session_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> None:
        self.session_ms = session_ms
        self._last_contact_ms: dict[tuple[int, int], float] = {}

    def activate(self, image: MetadataImage, now_ms: float, own: int | None = None) -> None:
        """Replace all sessions by a full one for each unfenced broker, when this controller becomes active (R-277).

        ``own`` is the id of the broker in this process, or None. It gets no session: its former process has ended, and
        it registers again.
        """
        live = (b for b in image.brokers.values() if not b.fenced and b.broker_id != own)
        self._last_contact_ms = {(b.broker_id, b.broker_epoch): now_ms for b in live}

    def touch(self, broker_id: int, broker_epoch: int, now_ms: float) -> None:
        """Start or renew a session by a heartbeat on arrival, before it waits in the controller's queue (R-276).

        Broker id and epoch are not checked: a session of another epoch than the registered one has no effect.
        """
        self._last_contact_ms[(broker_id, broker_epoch)] = now_ms

    def remove(self, broker_id: int, broker_epoch: int) -> None:
        """Remove the session of a broker, if it has one, so that another process with its id can register at once."""
        self._last_contact_ms.pop((broker_id, broker_epoch), None)

    def last_contact_ms(self, broker_id: int, broker_epoch: int) -> float | None:
        """Return the monotonic time in ms of a broker's last heartbeat or of `activate`; None without a session."""
        return self._last_contact_ms.get((broker_id, broker_epoch))

    def has_valid_session(self, broker_id: int, broker_epoch: int, now_ms: float) -> bool:
        """Return True if the broker has a session with this epoch that has not expired."""
        contact_ms = self._last_contact_ms.get((broker_id, broker_epoch))
        return contact_ms is not None and now_ms <= contact_ms + self.session_ms

    def next_expired_broker(self, image: MetadataImage, now_ms: float) -> int | None:
        """Return the id of an unfenced broker whose session has expired, so that it must be fenced; None if none has.

        One at a time, since fencing one changes the image for the next. Its session stays. Expired sessions of brokers
        that are fenced, unregistered or registered with another epoch are removed.
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
    """Monotonic times since when brokers have been fenced; time before this controller became active does not count."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}

    def reset(self) -> None:
        """Clear the times: the next `fenced_for` starts the time of every fenced broker at its own ``now_ms``."""
        self._since.clear()

    def fenced_for(self, image: MetadataImage, now_ms: float, after_ms: float) -> set[int]:
        """Return the registered brokers that have been fenced for at least ``after_ms``.

        Records ``now_ms`` as the beginning for newly fenced brokers, and forgets brokers that are not fenced.
        """
        fenced = {i for i, b in image.brokers.items() if b.fenced}
        self._since = {i: self._since.get(i, now_ms) for i in fenced}
        return {i for i, since in self._since.items() if now_ms - since >= after_ms}
