"""Factories of a node's security components: authorizer, audit log, quotas, access to the controllers.

Source: ``BrokerServer.startup``, ``QuotaFactory.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.services import QuotaHolder
from ottla.controller.config.config_keys import AUDIT_LOG
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.quorum_controller import QuorumController
from ottla.env.env import Env

if TYPE_CHECKING:
    from ottla.broker.quotas.client_quotas import QuotaManagers
    from ottla.broker.security.authz.audit_log import AuditLog
    from ottla.broker.security.authz.authorizer import Authorizer
    from ottla.client.connection_security import ConnectionSecurity


def create_controller_access(config: NodeConfig) -> ConnectionSecurity:
    """Return the security settings of connections to controllers; called for the first remote connection."""
    # lazy: 6.8 ms, 98 kB
    from ottla.broker.interbroker.credentials import controller_access

    return controller_access(config)


def create_audit_log(env: Env, config: NodeConfig) -> AuditLog | None:
    """Return the audit log of authentications and authorization decisions; None if it is disabled."""
    level = config.values.get(AUDIT_LOG)
    if level is None:
        return None
    # lazy: 1.4 ms, 31 kB
    from ottla.broker.security.authz.audit_log import AuditLog

    return AuditLog.from_level(env, level)


def create_authorizer(config: NodeConfig, controller: QuorumController) -> Authorizer | None:
    """Return the authorizer, subscribed to committed ACLs; None without ``authorizer.class.name``.

    Raises:
        ConfigException: as `Authorizer.from_config`.
    """
    if not config.text("authorizer.class.name"):
        return None
    # lazy: 2.1 ms, 81 kB
    from ottla.broker.security.authz.authorizer import Authorizer

    made = Authorizer.from_config(config)
    controller.subscribe(made.publish)
    return made


def create_quota_holder(env: Env, controller: QuorumController) -> QuotaHolder:
    """Return the holder of client quotas, which creates the quota managers with the first quota."""
    out = QuotaHolder()
    made: list[QuotaManagers] = []

    def publish(image: MetadataImage, delta: MetadataDelta) -> None:
        if any(about[0] == "quota" for about in delta.others):
            if not made:
                # lazy: 4.4 ms, 203 kB
                from ottla.broker.quotas.client_quotas import QuotaManagers

                made.append(QuotaManagers(env))
            made[0].publish(image, delta)
            out.quotas = made[0] if made[0].is_enabled else None
            out.times_requests = made[0].times_requests

    controller.subscribe(publish)
    return out
