"""Credentials of this node for connections to other nodes: inter-broker listener and controller listener.

Source: ``ChannelBuilders.java``, ``NodeToControllerChannelManagerImpl.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.config.listener_config import DEFAULT_LISTENER, ConfigProblem, controller_listener_names
from ottla.broker.config.node_config import NodeConfig
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity

INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM = "sasl.mechanism.controller.protocol"


def inter_broker_access(config: NodeConfig) -> ConnectionSecurity:
    """Return the security settings for connections to the inter-broker listener of other brokers.

    Raises:
        InvalidSecurityConfig: Invalid settings, which prevent the start.
    """
    return _access_at(config, config.inter_broker_listener, INTER_BROKER_MECHANISM)


def controller_access(config: NodeConfig) -> ConnectionSecurity:
    """Return the security settings for connections to the controller listener.

    Raises:
        InvalidSecurityConfig: Invalid settings, which prevent the start.
    """
    return _access_at(config, controller_listener_names(config.values)[0], CONTROLLER_MECHANISM)


def find_credential_problems(config: NodeConfig) -> Iterator[ConfigProblem]:
    """Yield setting name and problem of invalid credentials, which prevent the start; none for a standalone node."""
    if config.is_standalone:
        return
    # lazy: 3.7 ms, 100 kB
    from ottla.client.security_config import InvalidSecurityConfig

    for key, way in ((INTER_BROKER_MECHANISM, inter_broker_access), (CONTROLLER_MECHANISM, controller_access)):
        try:
            way(config)
        except InvalidSecurityConfig as error:
            yield key, str(error)


def _access_at(config: NodeConfig, listener: str, mechanism_key: str) -> ConnectionSecurity:
    """Return the security settings for a listener; ``mechanism_key``: setting with the SASL mechanism.

    They are cached in ``config``, as all connections share them with their OAuth token.
    """
    protocol = config.security_protocol(listener)
    if protocol == DEFAULT_LISTENER:
        return NO_SECURITY
    key = (listener, mechanism_key)
    if key not in config.outbound_access:
        # lazy: 8.1 ms, 260 kB: only with credentials
        from ottla.broker.security.authn.listener_security import build_outbound_access

        config.outbound_access[key] = build_outbound_access(
            config.values, listener, protocol, config.text(mechanism_key)
        )
    return config.outbound_access[key]
