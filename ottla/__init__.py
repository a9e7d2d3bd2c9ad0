"""Ottla: Apache Kafka's wire protocol, storage format and cluster rules, in readable Python on trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.embedded import Broker as Broker

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load `Broker` when it is asked for: importing a room must stay cheap."""
    if name == "Broker":
        from ottla.embedded import Broker

        return Broker
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
