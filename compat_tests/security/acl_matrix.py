"""Requests of a client under many sets of ACLs.

The client is User:ANONYMOUS at 127.0.0.2; the owner at 127.0.0.1 has all permissions and sets the ACLs. Compared are
the parts of a response that ACLs decide: names, error codes, bits of authorized operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compat_tests.security.acl_requests import AclRequest, acl_requests, fill_message
from compat_tests.support.raw_client import RawClient, wait_until
from ottla.controller.metadata.acl import AclOperation, ResourceType
from ottla.tools.dump import to_json_value
from ottla.wire.api_keys import ApiKey, request_class
from ottla.wire.messages import create_acls, create_topics, delete_acls, describe_acls

O, R = AclOperation, ResourceType  # noqa: E741 - rows are short
OWNER, ASKER = "127.0.0.1", "127.0.0.2"
HOSTS = (OWNER, "0:0:0:0:0:0:0:1")
"""Hosts of the owner: Kafka's processes connect to each other by either address."""
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
AclEntry = tuple[int, AclOperation, tuple[ResourceType, str], int, str, str]
"""Permission, operation, resource with its name, pattern, principal, host."""
EVERYTHING = (R.CLUSTER, R.TOPIC, R.GROUP, R.TRANSACTIONAL_ID)
IMPLIED = {
    O.DESCRIBE: (O.READ, O.WRITE, O.DELETE, O.ALTER, O.CREATE),
    O.DESCRIBE_CONFIGS: (O.ALTER_CONFIGS, O.ALTER),
}


def acl_sets_for(requested: AclRequest) -> Iterator[tuple[str, list[AclEntry]]]:
    """Return the sets of ACLs that a request is sent under, by name."""
    for number, (operation, at) in enumerate(requested.required_rights):
        others = [_rule(ALLOW, o, r) for n, (o, r) in enumerate(requested.required_rights) if n != number]
        allow = _rule(ALLOW, operation, at)
        prefix = (at[0], at[1][:3])
        pre = f"{number}:" if number else ""
        yield f"{pre}none", others
        yield f"{pre}allow", [*others, allow]
        yield f"{pre}all", [*others, _rule(ALLOW, O.ALL, at)]
        yield f"{pre}another", [*others, _rule(ALLOW, O.CLUSTER_ACTION if at[0] is not R.CLUSTER else O.CREATE, at)]
        yield f"{pre}everybody", [*others, _rule(ALLOW, operation, at, principal="User:*", host="*")]
        yield f"{pre}somebody else", [*others, _rule(ALLOW, operation, at, principal="User:other")]
        yield f"{pre}elsewhere", [*others, _rule(ALLOW, operation, at, host="127.0.0.3")]
        yield f"{pre}denied", [*others, allow, _rule(DENY, operation, at)]
        yield f"{pre}all denied", [*others, allow, _rule(DENY, O.ALL, at)]
        yield f"{pre}others denied", [*others, allow, _rule(DENY, operation, at, principal="User:other")]
        if at[0] is not R.CLUSTER:
            wildcard = (at[0], "*")
            yield f"{pre}prefix", [*others, _rule(ALLOW, operation, prefix, PREFIXED)]
            yield f"{pre}wildcard", [*others, _rule(ALLOW, operation, wildcard)]
            yield f"{pre}prefix denied", [*others, allow, _rule(DENY, operation, prefix, PREFIXED)]
            yield f"{pre}wildcard denied", [*others, allow, _rule(DENY, operation, wildcard)]
            yield f"{pre}not a prefix", [*others, _rule(ALLOW, operation, prefix)]
            yield f"{pre}another name", [*others, _rule(ALLOW, operation, (at[0], "zebra"))]
        for implying in IMPLIED.get(operation, ()):
            if not (at[0] is R.GROUP and implying in (O.WRITE, O.ALTER, O.CREATE)):
                yield f"{pre}{implying.name}", [*others, _rule(ALLOW, implying, at)]
                yield f"{pre}{implying.name} denied", [*others, allow, _rule(DENY, implying, at)]


def _rule(
    permission: int,
    operation: AclOperation,
    at: tuple[ResourceType, str],
    pattern: int = LITERAL,
    principal: str = "User:ANONYMOUS",
    host: str = ASKER,
) -> AclEntry:
    return permission, operation, at, pattern, principal, host


class AclMatrixClient:
    """Node with the connections of its owner and of its client."""

    def __init__(self, port: int) -> None:
        self._owner = RawClient(port)
        self._port = port
        self._asker = RawClient(port, source=ASKER)

    def prepare(self) -> None:
        """Take the node over, and create the resources of the requests."""
        self._add([_rule(ALLOW, O.ALL, (r, _any(r)), host=h) for r in EVERYTHING for h in HOSTS])
        new = [create_topics.CreatableTopic(name, 1, 1) for name in ("walk", "other")]
        made = self._owner.call(ApiKey.CREATE_TOPICS, 7, create_topics.CreateTopicsRequest(new, 9000))
        assert not any(t.error_code for t in made.topics), made
        self._find(0, "walkers")
        self._find(1, "walking")
        commit = next(a for a in acl_requests() if a.label == "commit")
        wait_until(
            lambda: not self._owner.call(commit.key, commit.version, commit.body).topics[0].partitions[0].error_code
        )
        begin = fill_message(request_class(ApiKey.INIT_PRODUCER_ID), {"transaction_timeout_ms": 60_000})
        wait_until(lambda: not self._owner.call(ApiKey.INIT_PRODUCER_ID, 4, begin).error_code)

    def _find(self, kind: int, name: str) -> None:
        request = fill_message(request_class(ApiKey.FIND_COORDINATOR), {"key_type": kind, "coordinator_keys": [name]})
        wait_until(lambda: not self._owner.call(ApiKey.FIND_COORDINATOR, 4, request).coordinators[0].error_code)

    def call_under(self, rules: list[AclEntry], requested: AclRequest) -> Any:
        """Return the response to a client under these ACLs."""
        self._drop()
        self._add(rules)
        try:
            return authorization_outcome(
                to_json_value(self._asker.call(requested.key, requested.version, requested.body))
            )
        except (ConnectionError, TimeoutError) as error:
            self._asker = RawClient(self._port, source=ASKER)
            return type(error).__name__

    def _add(self, rules: list[AclEntry]) -> None:
        rows = [
            create_acls.AclCreation(r[0], r[1], pattern, member, host, o, p) for p, o, r, pattern, member, host in rules
        ]
        answer = self._owner.call(ApiKey.CREATE_ACLS, 2, create_acls.CreateAclsRequest(rows))
        assert not any(row.error_code for row in answer.results), answer
        self._wait_for_acls(len({r for r in rules if r[5] not in HOSTS}))

    def _drop(self) -> None:
        filters = [delete_acls.DeleteAclsFilter(1, None, 1, None, host, 1, 1) for host in (ASKER, "*", "127.0.0.3")]
        self._owner.call(ApiKey.DELETE_ACLS, 2, delete_acls.DeleteAclsRequest(filters))
        self._wait_for_acls(0)

    def _wait_for_acls(self, count: int) -> None:
        """Wait until the broker has the ACLs of the controller."""
        everything = describe_acls.DescribeAclsRequest(1, None, 1, None, None, 1, 1)

        def has_acls() -> bool:
            answer = self._owner.call(ApiKey.DESCRIBE_ACLS, 2, everything)
            return sum(a.host not in HOSTS for r in answer.resources for a in r.acls) == count

        wait_until(has_acls, 0.003)


def _any(resource: ResourceType) -> str:
    return "kafka-cluster" if resource is R.CLUSTER else "*"


COMPARED_FIELDS = (
    "error_code",
    "partition_error_code",
    "topic_config_error_code",
    "name",
    "topic",
    "group_id",
    "transactional_id",
    "resource_name",
    "topic_authorized_operations",
    "cluster_authorized_operations",
    "authorized_operations",
    "key",
    "num_partitions",
)


def authorization_outcome(answer: Any) -> Any:
    """Return the parts of a response that ACLs decide."""
    if isinstance(answer, dict):
        rows = {
            k: authorization_outcome(v)
            for k, v in answer.items()
            if k in COMPARED_FIELDS or isinstance(v, (dict, list))
        }
        return {k: v for k, v in rows.items() if v not in ([], {}, None)}
    if isinstance(answer, list):
        return sorted((row for x in answer if isinstance(x, dict) and (row := authorization_outcome(x))), key=repr)
    return answer


def run_matrix(port: int, every: int = 1) -> dict[str, Any]:
    """Send every request under every set of ACLs; return outcomes by name. ``every``: only one cell in so many."""
    steps = AclMatrixClient(port)
    steps.prepare()
    cells = [
        (f"{requested.label}: {name}", rules, requested)
        for requested in acl_requests()
        for name, rules in acl_sets_for(requested)
    ]
    return {label: steps.call_under(rules, requested) for label, rules, requested in cells[::every]}


def run_matrix_as_super_user(port: int) -> dict[str, Any]:
    """Send every request as a super user, with ACLs that deny all."""
    steps = AclMatrixClient(port)
    steps.prepare()
    out = {}
    for requested in acl_requests():
        rules = [_rule(DENY, O.ALL, at) for at in dict.fromkeys(at for _, at in requested.required_rights)]
        as_super_user = f"{requested.label}: super user"
        out[as_super_user] = steps.call_under(rules, requested)
    return out
