"""Index of ACLs by resource, so that a decision evaluates only ACLs of the resource.

Behaviour (S-336, S-337): an ACL names a resource literally, by a prefix, or all of a type by ``*``. Any matching DENY
decides; else any matching ALLOW; else the operation is denied if any ACL names the resource; else there is no decision.
READ, WRITE, DELETE and ALTER imply DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. A DENY implies no other.

Source: ``StandardAuthorizerData.java``, ``AclCache.java``, ``Authorizer.authorizeByResourceType`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.controller.metadata.acl import (
    WILDCARD,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    StandardAcl,
)

WILDCARD_PRINCIPAL = "User:*"
_NO_ACLS: Mapping[bytes, StandardAcl] = {}
_IMPLYING = {
    AclOperation.DESCRIBE: frozenset(
        {
            AclOperation.DESCRIBE,
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.ALL,
        }
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset(
        {AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS, AclOperation.ALL}
    ),
}


class AclIndex:
    """Index of all ACLs. The time to add or remove an ACL does not depend on the number of ACLs of other resources."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, StandardAcl] = {}
        self._literal: dict[tuple[ResourceType, str], dict[bytes, StandardAcl]] = {}
        self._prefixed: dict[tuple[ResourceType, str], dict[bytes, StandardAcl]] = {}
        """ACLs by id, for each (type, name): thousands may have the same name, and all may be removed at once."""
        self._lengths: dict[tuple[ResourceType, int], int] = {}
        """Number of distinct prefixes by (resource type, prefix length)."""

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, acl_id: bytes, acl: StandardAcl) -> None:
        """Add an ACL under its id (UUID of the ACL record), replacing an existing one with the same id."""
        self.remove(acl_id)
        self._by_id[acl_id] = acl
        at = acl.resource, acl.name
        if acl.pattern is not PatternType.PREFIXED:
            self._literal.setdefault(at, {})[acl_id] = acl
            return
        if at not in self._prefixed:
            length = acl.resource, len(acl.name)
            self._lengths[length] = self._lengths.get(length, 0) + 1
        self._prefixed.setdefault(at, {})[acl_id] = acl

    def remove(self, acl_id: bytes) -> None:
        """Remove the ACL with an id; an unknown id has no effect."""
        acl = self._by_id.pop(acl_id, None)
        if acl is None:
            return
        at = acl.resource, acl.name
        of = self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal
        del of[at][acl_id]
        if not of[at]:
            del of[at]
            if of is self._prefixed:
                length = acl.resource, len(acl.name)
                self._lengths[length] -= 1
                if not self._lengths[length]:
                    del self._lengths[length]

    def _acls_for(self, resource: ResourceType, name: str) -> Iterator[StandardAcl]:
        """Yield the ACLs that match a resource, of any principal and operation: literal, wildcard and prefixed."""
        yield from self._literal.get((resource, name), _NO_ACLS).values()
        if name != WILDCARD:
            yield from self._literal.get((resource, WILDCARD), _NO_ACLS).values()
        for kind, length in self._lengths:
            if kind == resource and length <= len(name):
                yield from self._prefixed.get((resource, name[:length]), _NO_ACLS).values()

    def evaluate(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> bool | None:
        """Return True if the ACLs allow an operation of a client (principal, IP address), False if they deny it.

        False also if ACLs name the resource, but none allows the operation to this client. None if no ACL names the
        resource: the caller applies its default. Super users are not considered here.
        """
        implying = _IMPLYING.get(operation) or (operation, AclOperation.ALL)
        allowed: bool | None = None
        for acl in self._acls_for(resource, name):
            if allowed is None:
                allowed = False
            if not _matches_subject(acl, principal, host):
                continue
            if acl.permission is AclPermissionType.ALLOW:
                allowed = allowed or acl.operation in implying
            elif acl.operation in (operation, AclOperation.ALL):
                return False
        return allowed

    def matching_acl(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType, name: str
    ) -> StandardAcl | None:
        """Return the ACL that allows or denies an operation to a client in `evaluate`; None if no ACL does either."""
        implying = _IMPLYING.get(operation) or (operation, AclOperation.ALL)
        allowing: StandardAcl | None = None
        for acl in self._acls_for(resource, name):
            if not _matches_subject(acl, principal, host):
                continue
            if acl.permission is AclPermissionType.ALLOW:
                allowing = acl if acl.operation in implying else allowing
            elif acl.operation in (operation, AclOperation.ALL):
                return acl
        return allowing

    def evaluate_by_resource_type(
        self, principal: str, host: str, operation: AclOperation, resource: ResourceType
    ) -> bool:
        """Return True if ACLs allow the operation on at least one resource of a type (S-339), whether it exists or not.

        Only ACLs for the operation itself or for ALL count: none for another operation that implies it.
        """
        wanted = operation, AclOperation.ALL
        denied: set[tuple[PatternType, str]] = set()
        allowed: set[tuple[PatternType, str]] = set()
        for acl in self._by_id.values():
            if acl.resource == resource and acl.operation in wanted and _matches_subject(acl, principal, host):
                of = denied if acl.permission is AclPermissionType.DENY else allowed
                of.add((acl.pattern, acl.name))
        everything = PatternType.LITERAL, WILDCARD
        if everything in denied:
            return False
        return everything in allowed or any(not _is_covered(pattern, name, denied) for pattern, name in allowed)


def _matches_subject(acl: StandardAcl, principal: str, host: str) -> bool:
    return acl.principal in (principal, WILDCARD_PRINCIPAL) and acl.host in (host, WILDCARD)


def _is_covered(pattern: PatternType, name: str, denied: set[tuple[PatternType, str]]) -> bool:
    """Return True if one DENY pattern of ``denied`` covers all names of the ALLOW pattern (``pattern``, ``name``)."""
    if pattern is PatternType.LITERAL and (pattern, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
