"""Fast fencing: the active controller ends a broker's session at once when its process has certainly ended.

A probe connects to a broker after its connection to the controller was lost; a refused connection shows that no process
listens there. Fencing a live broker is always safe: it is unfenced after its next heartbeat, but its clients are
disturbed. A refused connection therefore counts only if a probe has connected to this process before (a listener behind
a firewall, or not bound yet, refuses as well), and no heartbeat arrived since the probe began. A broker that is only
silent keeps its session.

Kafka waits for the session timeout. The rule is Ottla's own.
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
    """Event for the active controller: a probe's connection to a broker was refused.

    The response to it is True if the broker was fenced.
    """

    broker_id: int
    broker_epoch: int
    probe_started_ms: float
    """Monotonic time in ms when the probe started."""


def is_connection_refused(error: OSError) -> bool:
    """Return True if a probe failed with ECONNREFUSED, as no process listens on the port."""
    return error.errno == ECONNREFUSED


class BrokerProbes:
    """Record of the broker processes to which a probe has connected. Every controller keeps it, active or not."""

    def __init__(self) -> None:
        self._reached: dict[int, int] = {}

    def record_reached(self, broker_id: int, broker_epoch: int) -> None:
        """Record that a probe has connected to the broker with this id and epoch, in place of an earlier epoch."""
        self._reached[broker_id] = broker_epoch

    def has_reached(self, broker_id: int, broker_epoch: int) -> bool:
        """Return True if a probe has connected to the broker since its registration with this epoch."""
        return self._reached.get(broker_id) == broker_epoch


def is_broker_process_gone(
    image: MetadataImage, leases: BrokerHeartbeatTracker, probes: BrokerProbes, gone: BrokerConnectionRefused
) -> bool:
    """Return True if the refused connection ``gone`` shows that the process of an unfenced broker has ended.

    ``leases``: sessions of the brokers.
    """
    broker = image.brokers.get(gone.broker_id)
    if broker is None or broker.fenced or broker.broker_epoch != gone.broker_epoch:
        return False
    contact_ms = leases.last_contact_ms(gone.broker_id, gone.broker_epoch)
    return probes.has_reached(gone.broker_id, gone.broker_epoch) and (
        contact_ms is None or contact_ms <= gone.probe_started_ms
    )


def fence_refused_broker(
    image: MetadataImage,
    leases: BrokerHeartbeatTracker,
    probes: BrokerProbes,
    gone: BrokerConnectionRefused,
    static: Mapping[str, str],
) -> ControllerResultSteps:
    """Return the records that fence a broker if its process has ended, as a job; remove its session then.

    The broker may register again at once. The response is True if it is fenced; otherwise there are no records.
    """
    if not is_broker_process_gone(image, leases, probes, gone):
        return ControllerResult(False)
    fenced = yield from broker_heartbeat.fence_broker(image, gone.broker_id, static)
    leases.remove(gone.broker_id, gone.broker_epoch)
    return ControllerResult(True, fenced.records)
