"""Ottla: Apache Kafka's wire protocol, storage format and cluster rules, in readable Python on trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.cluster import Cluster as Cluster
    from ottla.embedded import Broker as Broker

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load `Broker` and `Cluster` when they are asked for: importing a room must stay cheap."""
    if name == "Broker":
        # lazy: 209.0 ms, 15672 kB
        from ottla.embedded import Broker

        return Broker
    if name == "Cluster":
        # lazy: 180.3 ms, 11854 kB
        from ottla.cluster import Cluster

        return Cluster
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
