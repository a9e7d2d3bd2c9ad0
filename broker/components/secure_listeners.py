"""Factory of the security settings of a node's listeners with TLS or SASL.

Source: ``ChannelBuilders.serverChannelBuilder``, ``CredentialProvider.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.broker.security.authn.listener_security import ListenerSecurity, build_listener_security
from ottla.broker.security.authn.scram_server import find_scram_keys, no_delegation_tokens
from ottla.broker.services import BrokerServices
from ottla.jobs.supervision import supervise

if TYPE_CHECKING:
    from ottla.broker.security.authn.scram_server import DelegationTokenLookup


def create_listener_security(services: BrokerServices, listener: str, nursery: trio.Nursery) -> ListenerSecurity | None:
    """Return a listener's security settings, None for PLAINTEXT; start the refresh of its JWKS, if any, in ``nursery``.

    Raises:
        InvalidSecurityConfig, InvalidJaasConfig, InvalidMappingRule, InvalidKeytab, ValueError: as
            `build_listener_security`.
    """
    env, cache, config = services.env, services.metadata, services.config
    security = build_listener_security(
        config.values,
        listener,
        config.security_protocol(listener),
        lambda user, mechanism: find_scram_keys(cache.image, user, mechanism),
        env,
        _delegation_token_lookup(services),
        services.audit,
    )
    if security is not None and security.oauthbearer is not None and security.oauthbearer.jwks is not None:
        nursery.start_soon(supervise, env, "JWKS refresh", security.oauthbearer.jwks.run)
    return security


def _delegation_token_lookup(services: BrokerServices) -> DelegationTokenLookup:
    """Return the lookup of delegation tokens for SCRAM authentication."""
    secret = services.config.values.get("delegation.token.secret.key")
    if not secret:
        return no_delegation_tokens
    # lazy: 1.7 ms, 71 kB
    from ottla.broker.security.authn.delegation_token_logins import DelegationTokenCredentialCache

    return DelegationTokenCredentialCache(secret, lambda: services.metadata.image, services.env.uuid).find
