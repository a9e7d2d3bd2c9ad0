"""The words of access control: operations, resources, permissions, patterns, and one rule of who may do what.

Source: ``AclOperation.java``, ``ResourceType.java``, ``AclPermissionType.java``, ``PatternType.java``,
``AclEntry.java``, ``StandardAcl.java`` (apache/kafka 4.3.1).

From KIP-11; prefixes: KIP-290; authorized operations: KIP-430.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.wire.messages.metadata_records import AccessControlEntryRecord

CLUSTER_NAME = "kafka-cluster"
"""The one name a resource of kind `Resource.CLUSTER` has."""
WILDCARD = "*"


class Operation(IntEnum):
    """What may be done; as a bit of ``authorized_operations`` it stands at its own number."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    __hash__ = int.__hash__  # each decision is looked up by it: a name's hash is made in Python


class Resource(IntEnum):
    """What it may be done to."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    __hash__ = int.__hash__


class Permission(IntEnum):
    """Whether a rule forbids or allows."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(IntEnum):
    """How a rule's name is meant; the first three occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Acl(NamedTuple):
    """One rule: a principal (``User:name``) at a host may, or may not, do something to what a pattern names."""

    resource: Resource
    name: str
    pattern: Pattern
    principal: str
    host: str
    operation: Operation
    permission: Permission


_E = TypeVar("_E", Operation, Resource, Permission, Pattern)


def known(kind: type[_E], code: int) -> _E:
    """The word for a code; UNKNOWN for one nobody here knows."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def rule_of(record: AccessControlEntryRecord) -> Acl:
    """The rule a record of the metadata log holds."""
    return Acl(
        known(Resource, record.resource_type),
        record.resource_name,
        known(Pattern, record.pattern_type),
        record.principal,
        record.host,
        known(Operation, record.operation),
        known(Permission, record.permission_type),
    )


CANDIDATES: dict[Resource, tuple[Operation, ...]] = {
    Resource.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    Resource.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    Resource.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    Resource.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    Resource.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What can be done to each kind (item 342)."""


def bits(operations: tuple[Operation, ...]) -> int:
    """Operations as one number, as ``authorized_operations`` tells them."""
    return sum(1 << operation for operation in operations)


def operations_of(resource: Resource) -> int:
    """All that can be done to a kind, as bits: what everybody may where there is no authorizer."""
    return bits(CANDIDATES[resource])
