"""Fast fencing: ends a broker's session at once when its connection was lost and its port refuses connections.

Fencing a live broker is always safe: it returns with its next heartbeat, but disturbs its clients. A refused connection
therefore counts only if a probe has reached this process before (a listener behind a firewall, or not bound yet,
refuses as well), and no heartbeat arrived since the probe began. A broker that is only silent keeps its session.

Kafka waits for the end of the session. The rule is Ottla's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from errno import ECONNREFUSED
from typing import NamedTuple

from ottla.controller.control import broker_heartbeat
from ottla.controller.control.broker_heartbeat_tracker import BrokerHeartbeatTracker
from ottla.controller.control.controller_result import ControllerResult, ControllerResultSteps
from ottla.controller.metadata.image import MetadataImage


class BrokerConnectionRefused(NamedTuple):
    """A probe of a broker's port was refused; its answer is whether the broker was fenced for it."""

    broker_id: int
    broker_epoch: int
    probe_started_ms: float
    """Start of the probe, monotonic."""


def is_connection_refused(error: OSError) -> bool:
    """Return True if a probe failed since no process listens on the port: not for lack of a route, name or time."""
    return error.errno == ECONNREFUSED


class BrokerProbes:
    """Broker processes that a probe has reached. Every controller tracks them, active or not."""

    def __init__(self) -> None:
        self._reached: dict[int, int] = {}

    def record_reached(self, broker_id: int, broker_epoch: int) -> None:
        """Record a successful probe."""
        self._reached[broker_id] = broker_epoch

    def has_reached(self, broker_id: int, broker_epoch: int) -> bool:
        """Return True if a probe connected since this registration."""
        return self._reached.get(broker_id) == broker_epoch


def is_broker_process_gone(
    image: MetadataImage, leases: BrokerHeartbeatTracker, probes: BrokerProbes, gone: BrokerConnectionRefused
) -> bool:
    """Return True if a refused connection ends the session of a broker."""
    broker = image.brokers.get(gone.broker_id)
    if broker is None or broker.fenced or broker.broker_epoch != gone.broker_epoch:
        return False
    heard = leases.last_contact_ms(gone.broker_id, gone.broker_epoch)
    return probes.has_reached(gone.broker_id, gone.broker_epoch) and (heard is None or heard <= gone.probe_started_ms)


def fence_refused_broker(
    image: MetadataImage,
    leases: BrokerHeartbeatTracker,
    probes: BrokerProbes,
    gone: BrokerConnectionRefused,
    static: Mapping[str, str],
) -> ControllerResultSteps:
    """Fence a broker that is plainly gone, and end its lease: it may register again at once."""
    if not is_broker_process_gone(image, leases, probes, gone):
        return ControllerResult(False)
    fenced = yield from broker_heartbeat.fence_broker(image, gone.broker_id, static)
    leases.remove(gone.broker_id, gone.broker_epoch)
    return ControllerResult(True, fenced.records)
