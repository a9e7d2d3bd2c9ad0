"""Ottla: Apache Kafka's wire protocol, storage format and cluster rules, in readable Python on trio."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.broker.config.listener_config import ConfigException as ConfigException
    from ottla.cluster import Cluster as Cluster
    from ottla.cluster import ClusterFailed as ClusterFailed
    from ottla.embedded import AsyncBroker as AsyncBroker
    from ottla.embedded import Broker as Broker
    from ottla.embedded import BrokerFailed as BrokerFailed
    from ottla.tools.blocking_client import BlockingClient as BlockingClient
    from ottla.tools.blocking_client import ExpectationFailed as ExpectationFailed
    from ottla.tools.fault_client import FaultHandle as FaultHandle
    from ottla.tools.fault_client import FaultRejected as FaultRejected
    from ottla.tools.fault_client import FaultsDisabled as FaultsDisabled
    from ottla.tools.topic_record import TopicRecord as TopicRecord
    from ottla.wire.errors import ErrorCode as ErrorCode
    from ottla.wire.errors import ProtocolError as ProtocolError

__version__ = "0.1.0"

_MODULES = {
    "AsyncBroker": "ottla.embedded",
    "BlockingClient": "ottla.tools.blocking_client",
    "Broker": "ottla.embedded",
    "BrokerFailed": "ottla.embedded",
    "Cluster": "ottla.cluster",
    "ClusterFailed": "ottla.cluster",
    "ConfigException": "ottla.broker.config.listener_config",
    "ErrorCode": "ottla.wire.errors",
    "ExpectationFailed": "ottla.tools.blocking_client",
    "FaultHandle": "ottla.tools.fault_client",
    "FaultRejected": "ottla.tools.fault_client",
    "FaultsDisabled": "ottla.tools.fault_client",
    "ProtocolError": "ottla.wire.errors",
    "TopicRecord": "ottla.tools.topic_record",
}
"""Modules of the public names, imported at first use so that ``import ottla`` itself is cheap."""
__all__ = ["__version__", *_MODULES]  # noqa: PLE0604 - names of a table


def __getattr__(name: str) -> Any:
    """Import the module of a public name at its first use, and return its value; AttributeError for another name."""
    if name not in _MODULES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
