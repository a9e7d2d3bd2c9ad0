"""Liveness and readiness of a node, with the reasons why it is not ready.

A node is alive while its event loop responds. It is ready while the metadata quorum has a known leader, all its log
directories are usable, and, if it is a broker, it is registered, running and not fenced.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from ottla.broker.metadata.broker_lifecycle import BrokerState
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.raft.state_machine.events import NO_NODE_ID

_STATE_REASONS = {
    BrokerState.NOT_RUNNING: ("not_started", "broker has not started"),
    BrokerState.STARTING: ("not_registered", "broker is not registered with the controller"),
    BrokerState.RECOVERY: ("log_recovery", "broker loads and recovers its logs"),
    BrokerState.PENDING_CONTROLLED_SHUTDOWN: ("stopping", "broker hands over its partitions before it stops"),
    BrokerState.SHUTTING_DOWN: ("stopping", "broker is stopping"),
}


class HealthReason(NamedTuple):
    """Reason why a node is not ready."""

    reason: str
    """Stable identifier, such as ``fenced``."""
    message: str


class HealthSources(NamedTuple):
    """Node id, roles and functions that return the current state of a node, from which its readiness is derived."""

    node_id: int
    is_broker: bool
    is_controller: bool
    broker_state: Callable[[], BrokerState]
    image: Callable[[], MetadataImage]
    """Returns the newest committed metadata image of this node."""
    quorum_leader: Callable[[], int]
    offline_log_dirs: Callable[[], Collection[str]]


def readiness_reasons(sources: HealthSources) -> list[HealthReason]:
    """Return the reasons why a node is not ready; empty if it is ready."""
    reasons = []
    if sources.quorum_leader() == NO_NODE_ID:
        reasons.append(HealthReason("no_controller", "metadata quorum has no known leader"))
    if sources.is_broker:
        state = sources.broker_state()
        if state in _STATE_REASONS:
            reasons.append(HealthReason(*_STATE_REASONS[state]))
        registration = sources.image().brokers.get(sources.node_id)
        if registration is not None and registration.fenced:
            reasons.append(HealthReason("fenced", f"broker {sources.node_id} is fenced by the controller"))
    reasons += [
        HealthReason("log_directory_failed", f"log directory failed: {path}") for path in sources.offline_log_dirs()
    ]
    return reasons


def render_health(sources: HealthSources, reasons: list[HealthReason]) -> bytes:
    """Return the body of a health response, a JSON document: status, node id, roles, broker state and reasons.

    The status is ``not_ready`` if there are ``reasons``, else ``ready``.
    """
    roles = [name for name, has in (("broker", sources.is_broker), ("controller", sources.is_controller)) if has]
    document: dict[str, Any] = {
        "status": "not_ready" if reasons else "ready",
        "node_id": sources.node_id,
        "roles": roles,
        "reasons": [reason._asdict() for reason in reasons],
    }
    if sources.is_broker:
        document["broker_state"] = sources.broker_state().name
    return json.dumps(document).encode() + b"\n"
