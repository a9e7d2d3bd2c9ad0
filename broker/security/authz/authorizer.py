"""Authorizer: super users first, then ACLs, then the default for resources without ACLs.

Decisions are cached, at most until the ACLs change, so that Produce and Fetch need one lookup.

Source: ``StandardAuthorizer.java``, ``StandardAuthorizerData.java``, ``AuthHelper.scala`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any, Protocol

from ottla.broker.config.listener_config import STANDARD_AUTHORIZER, ConfigException
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.security.authz.acl_index import AclIndex
from ottla.broker.security.authz.audit_log import escape_name
from ottla.controller.metadata.acl import (
    SUPPORTED_OPERATIONS,
    AclOperation,
    ResourceType,
    acl_from_record,
    operation_bits,
)
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.wire.messages import metadata_records

_MAX_DECISIONS = 16_384
_MAX_CACHED_NAME_CHARS = 255
"""Maximum length of a resource name in the cache: a group id may be as long as a request."""


class AuthorizationSubject(Protocol):
    """Client whose operations are authorized, implemented by `ottla.broker.requests.peer.Peer`."""

    principal: str
    """Principal in the form ``User:name``."""
    host: str
    """IP address of the client."""


class Authorizer:
    """Authorizer of a node by the ACLs of its metadata image, with caches of decisions."""

    def __init__(self, super_users: Iterable[str] = (), *, is_open: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allows_without_acl = is_open
        """Value of ``allow.everyone.if.no.acl.found``."""
        self._acls = AclIndex()
        self.decisions: dict[tuple[str, str, AclOperation, ResourceType, str], bool] = {}
        """Cached decisions of `may`; callers may look them up without a call."""
        self._allowed: dict[tuple[str, str, AclOperation, ResourceType], set[str]] = {}
        """Allowed names among the cached decisions; the live sets that `allowed_names` returns."""
        self._decisions_by_resource_type: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}

    @staticmethod
    def from_config(config: NodeConfig) -> Authorizer:
        """Return the authorizer configured by a node's settings.

        Raises:
            ConfigException: unknown ``authorizer.class.name``, or a malformed super user.
        """
        named = config.text("authorizer.class.name")
        if named != STANDARD_AUTHORIZER:
            raise ConfigException(f"authorizer.class.name={named} is not supported: use {STANDARD_AUTHORIZER}")
        users = [x.strip() for x in config.values.get("super.users", "").split(";") if x.strip()]
        for user in users:
            if ":" not in user:
                raise ConfigException(f"super.users: {user} is not of the form User:name")
        is_open = config.values.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
        return Authorizer(users, is_open=is_open)

    def publish(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Apply the changed ACLs of a metadata publication; if there are any, clear all cached decisions."""
        is_touched = False
        for about in delta.others:
            if about[0] != "acl":
                continue
            is_touched = True
            record = image.others.get(about)
            if isinstance(record, metadata_records.AccessControlEntryRecord):
                self._acls.add(record.id, acl_from_record(record))
            else:
                self._acls.remove(about[1])
        if is_touched:
            self._clear_decisions()
            self._decisions_by_resource_type.clear()

    def _clear_decisions(self) -> None:
        self.decisions.clear()
        for names in self._allowed.values():
            names.clear()  # connections refer to these sets
        self._allowed.clear()

    def may(self, peer: AuthorizationSubject, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        """Return True if a client is authorized for an operation on a resource; cached at most until ACLs change."""
        key = peer.principal, peer.host, operation, resource, name
        known = self.decisions.get(key)
        return self._decide(*key) if known is None else known

    def _decide(self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        acl_decision = principal in self._super_users or self._acls.evaluate(principal, host, operation, resource, name)
        decision = self._allows_without_acl if acl_decision is None else acl_decision
        if len(name) <= _MAX_CACHED_NAME_CHARS:
            if len(self.decisions) >= _MAX_DECISIONS:
                self._clear_decisions()
            self.decisions[principal, host, operation, resource, name] = decision
            if decision:
                self._allowed.setdefault((principal, host, operation, resource), set()).add(name)
        return decision

    def allowed_names(self, peer: AuthorizationSubject, operation: AclOperation, resource: ResourceType) -> Set[str]:
        """Return the resource names with a cached permission for the operation; others may be undecided.

        The set is live until ACLs change or the cache is full: names are added as they are authorized. Then it is
        emptied for good, and a new set must be requested.
        """
        if len(self._allowed) >= _MAX_DECISIONS:
            self._clear_decisions()
        return self._allowed.setdefault((peer.principal, peer.host, operation, resource), set())

    def may_read(self, context: Any, topic: str) -> bool:
        """Return True if the client of a `RequestContext` may read a topic.

        If so, and without an audit log, the set of `allowed_names` becomes ``readable_topics`` of the connection, so
        that later requests need no call. With an audit log each decision must be logged, so nothing is stored.
        """
        is_allowed: bool = context.may(AclOperation.READ, ResourceType.TOPIC, topic)
        if is_allowed and context.services.audit is None:
            topics = self.allowed_names(context.peer, AclOperation.READ, ResourceType.TOPIC)
            context.peer.authorization_cache.readable_topics = topics
        return is_allowed

    def may_write(self, context: Any, topic: str) -> bool:
        """Return True if the client of a `RequestContext` may write to a topic.

        Like `may_read` it stores the set of allowed names with the connection, as ``writable_topics``.
        """
        is_allowed: bool = context.may(AclOperation.WRITE, ResourceType.TOPIC, topic)
        if is_allowed and context.services.audit is None:
            topics = self.allowed_names(context.peer, AclOperation.WRITE, ResourceType.TOPIC)
            context.peer.authorization_cache.writable_topics = topics
        return is_allowed

    def deciding_rule(
        self, peer: AuthorizationSubject, operation: AclOperation, resource: ResourceType, name: str
    ) -> str:
        """Return the rule by which `may` decides, in the format of Kafka's audit log."""
        if peer.principal in self._super_users:
            return "SuperUser"
        acl = self._acls.matching_acl(peer.principal, peer.host, operation, resource, name)
        if acl is None:
            return "DefaultAllow" if self.may(peer, operation, resource, name) else "DefaultDeny"
        return (
            f"MatchingAcl(acl=StandardAcl[resourceType={acl.resource.name}, resourceName={escape_name(acl.name)}, "
            f"patternType={acl.pattern.name}, principal={escape_name(acl.principal)}, host={escape_name(acl.host)}, "
            f"operation={acl.operation.name}, permissionType={acl.permission.name}])"
        )

    def may_any(self, peer: AuthorizationSubject, operation: AclOperation, resource: ResourceType) -> bool:
        """Return True if a client is authorized for an operation on at least one resource of a type (S-339).

        The resource need not exist.
        """
        key = peer.principal, peer.host, operation, resource
        known = self._decisions_by_resource_type.get(key)
        if known is None:
            known = self.may(peer, operation, resource, "hardcode") or self._acls.evaluate_by_resource_type(*key)
            if len(self._decisions_by_resource_type) >= _MAX_DECISIONS:
                self._decisions_by_resource_type.clear()
            self._decisions_by_resource_type[key] = known
        return known

    def authorized_operations(self, peer: AuthorizationSubject, resource: ResourceType, name: str) -> int:
        """Return the operations that a client is authorized for on a resource: bit n is the operation with code n.

        Source: S-342, KIP-430.
        """
        return operation_bits(tuple(o for o in SUPPORTED_OPERATIONS[resource] if self.may(peer, o, resource, name)))
