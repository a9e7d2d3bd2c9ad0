"""Types of ACLs in the metadata: operations, resource types, permissions, pattern types, and the ACL itself.

Source: ``AclOperation.java``, ``ResourceType.java``, ``AclPermissionType.java``, ``PatternType.java``,
``AclEntry.java``, ``StandardAcl.java`` (apache/kafka 4.3.1).

From KIP-11; prefixes: KIP-290; authorized operations: KIP-430.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeVar

from ottla.wire.messages.metadata_records import AccessControlEntryRecord

CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of type `ResourceType.CLUSTER`."""
WILDCARD = "*"


class AclOperation(IntEnum):
    """Operation of an ACL, with Kafka's code; the code is also the number of its bit in ``authorized_operations``."""

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

    __hash__ = int.__hash__  # each authorization hashes it; the hash of an enum's name is computed in Python


class ResourceType(IntEnum):
    """Resource type of an ACL, with Kafka's code; ANY occurs in filters only, UNKNOWN also for undefined codes."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    __hash__ = int.__hash__


class AclPermissionType(IntEnum):
    """Permission of an ACL, with Kafka's code: deny or allow; ANY is for filters, UNKNOWN also for undefined codes."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    """Pattern type of an ACL's name, with Kafka's code; ANY, MATCH: filters only, UNKNOWN: also undefined codes."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class StandardAcl(NamedTuple):
    """Access control list entry (ACL).

    A principal (``User:name``) from a host may, or may not, perform an operation on the resources whose name matches
    the pattern.
    """

    resource: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermissionType


_E = TypeVar("_E", AclOperation, ResourceType, AclPermissionType, PatternType)


def from_code(kind: type[_E], code: int) -> _E:
    """Return the enum member of an ACL code in a request or record; UNKNOWN for a code that is not defined."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def acl_from_record(record: AccessControlEntryRecord) -> StandardAcl:
    """Return the ACL in an AccessControlEntryRecord; codes that are not defined become UNKNOWN."""
    return StandardAcl(
        from_code(ResourceType, record.resource_type),
        record.resource_name,
        from_code(PatternType, record.pattern_type),
        record.principal,
        record.host,
        from_code(AclOperation, record.operation),
        from_code(AclPermissionType, record.permission_type),
    )


SUPPORTED_OPERATIONS: dict[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""Supported operations of each resource type (S-342)."""


def operation_bits(operations: tuple[AclOperation, ...]) -> int:
    """Return a bit field with the bit of each operation's code set, as in ``authorized_operations``."""
    return sum(1 << operation for operation in operations)


def supported_operation_bits(resource: ResourceType) -> int:
    """Return the bit field of all operations of a resource type: without an authorizer, every client has them."""
    return operation_bits(SUPPORTED_OPERATIONS[resource])
