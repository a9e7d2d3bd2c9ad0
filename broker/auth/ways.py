"""What this node needs where it speaks to other nodes: at brokers' own listener, and at the controllers'.

Source: ``ChannelBuilders.java``, ``NodeToControllerChannelManagerImpl.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.addresses import DEFAULT_LISTENER, Refusal, controller_names
from ottla.broker.config import NodeConfig
from ottla.peers.access import OPEN, Access

BETWEEN_BROKERS = "sasl.mechanism.inter.broker.protocol"
TO_CONTROLLERS = "sasl.mechanism.controller.protocol"


def between_brokers(config: NodeConfig) -> Access:
    """What another broker's listener for brokers wants.

    Raises:
        BadAccess: settings that cannot be; the start refuses them.
    """
    return _at(config, config.inter_broker_listener, BETWEEN_BROKERS)


def to_controllers(config: NodeConfig) -> Access:
    """What the controllers' listener wants.

    Raises:
        BadAccess: settings that cannot be; the start refuses them.
    """
    return _at(config, controller_names(config.values)[0], TO_CONTROLLERS)


def refusals(config: NodeConfig) -> Iterator[Refusal]:
    """What a node that has to speak to others cannot start with."""
    if config.alone:
        return
    from ottla.peers.security import BadAccess

    for key, way in ((BETWEEN_BROKERS, between_brokers), (TO_CONTROLLERS, to_controllers)):
        try:
            way(config)
        except BadAccess as error:
            yield key, str(error)


def _at(config: NodeConfig, listener: str, mechanism_key: str) -> Access:
    """One for all who go that way: they share the token they show."""
    protocol = config.protocol(listener)
    if protocol == DEFAULT_LISTENER:
        return OPEN
    key = (listener, mechanism_key)
    if key not in config.ways:
        from ottla.broker.auth.doors import access_to  # hashes load a library that others need not have

        config.ways[key] = access_to(config.values, listener, protocol, config.text(mechanism_key))
    return config.ways[key]
