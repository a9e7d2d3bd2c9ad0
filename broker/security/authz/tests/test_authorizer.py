"""Authorization decisions: rows of the rules, and random changes compared with a model that keeps a list."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.requests.peer import Peer
from ottla.broker.security.authz.acl_index import AclIndex
from ottla.broker.security.authz.authorizer import Authorizer
from ottla.controller.metadata.acl import (
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    StandardAcl,
    acl_from_record,
    supported_operation_bits,
)
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage, image_records
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import metadata_records

ALICE, BOB = "User:alice", "User:bob"
T = ResourceType.TOPIC


def acl(
    name: str = "t",
    operation: AclOperation = AclOperation.READ,
    *,
    deny: bool = False,
    prefix: bool = False,
    principal: str = ALICE,
    host: str = "*",
    kind: ResourceType = T,
) -> StandardAcl:
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return StandardAcl(
        kind, name, pattern, principal, host, operation, AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    )


def record(number: int, rule: StandardAcl) -> metadata_records.AccessControlEntryRecord:
    ints = [int(x) if isinstance(x, int) else x for x in rule]
    return metadata_records.AccessControlEntryRecord(number.to_bytes(16, "big"), *ints)


class AclSubject:
    def __init__(self, principal: str = ALICE, host: str = "10.0.0.1") -> None:
        self.principal, self.host = principal, host


def holding(*rules: StandardAcl, **how: Any) -> Authorizer:
    draft = ImageBuilder(MetadataImage())
    for number, rule in enumerate(rules):
        draft.replay(record(number, rule))
    image = run_to_end(draft.image(1, 1))
    out = Authorizer(**how)
    out.publish(image, run_to_end(draft.delta(image)))
    return out


@pytest.mark.behaviour("P-95")
@pytest.mark.parametrize(
    ("rules", "operation", "name", "allowed"),
    [
        # 336: principal, host, operation, name
        ([acl()], AclOperation.READ, "t", True),
        ([acl(principal=BOB)], AclOperation.READ, "t", False),
        ([acl(principal="User:*")], AclOperation.READ, "t", True),
        ([acl(principal="Group:alice")], AclOperation.READ, "t", False),
        ([acl(host="10.0.0.1")], AclOperation.READ, "t", True),
        ([acl(host="10.0.0.2")], AclOperation.READ, "t", False),
        ([acl(operation=AclOperation.WRITE)], AclOperation.READ, "t", False),
        ([acl(operation=AclOperation.ALL)], AclOperation.READ, "t", True),
        ([acl("*")], AclOperation.READ, "t", True),
        ([acl("x", prefix=True)], AclOperation.READ, "xy", True),
        ([acl("xy", prefix=True)], AclOperation.READ, "xy", True),
        ([acl("xy", prefix=True)], AclOperation.READ, "x", False),
        ([acl("x")], AclOperation.READ, "xy", False),
        ([acl("*", prefix=True)], AclOperation.READ, "x", False),
        ([acl(kind=ResourceType.GROUP)], AclOperation.READ, "t", False),
        # 95: implied operations
        *[
            ([acl(operation=o)], AclOperation.DESCRIBE, "t", True)
            for o in (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL)
        ],
        *[
            ([acl(operation=o)], AclOperation.DESCRIBE, "t", False)
            for o in (AclOperation.CREATE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
        ],
        ([acl(operation=AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, "t", True),
        ([acl(operation=AclOperation.ALTER)], AclOperation.DESCRIBE_CONFIGS, "t", False),
        ([acl(operation=AclOperation.DESCRIBE)], AclOperation.READ, "t", False),
        # 337: any deny, then any allow
        ([acl(), acl(deny=True)], AclOperation.READ, "t", False),
        ([acl(deny=True, operation=AclOperation.ALL), acl()], AclOperation.READ, "t", False),
        ([acl("t"), acl("*", deny=True)], AclOperation.READ, "t", False),
        ([acl("tt"), acl("t", prefix=True, deny=True)], AclOperation.READ, "tt", False),
        ([acl(), acl(deny=True, principal=BOB)], AclOperation.READ, "t", True),
        ([acl(), acl(deny=True, host="10.0.0.2")], AclOperation.READ, "t", True),
        ([acl(), acl(deny=True, operation=AclOperation.DESCRIBE)], AclOperation.READ, "t", True),
        ([acl(), acl(deny=True, operation=AclOperation.DESCRIBE)], AclOperation.DESCRIBE, "t", False),
        ([acl(operation=AclOperation.DESCRIBE), acl(deny=True)], AclOperation.DESCRIBE, "t", True),
    ],
)
def test_acl_rules_decide_by_principal_host_operation_and_name(
    rules: list[StandardAcl], operation: AclOperation, name: str, allowed: bool
) -> None:
    for order in (rules, rules[::-1]):
        assert holding(*order).may(AclSubject(), operation, T, name) is allowed


@pytest.mark.behaviour("P-95")
@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], True),  # 337: no rule matches
        ([acl("other")], True),
        ([acl(principal=BOB)], False),
        ([acl("*", principal=BOB)], False),
        ([acl("t", principal=BOB, prefix=True)], False),
        ([acl(principal=BOB, deny=True)], False),
    ],
)
def test_allow_if_no_acl_found_applies_only_without_any_acl(rules: list[StandardAcl], allowed: bool) -> None:
    assert holding(*rules, is_open=True).may(AclSubject(), AclOperation.READ, T, "t") is allowed
    assert holding(*rules).may(AclSubject(), AclOperation.READ, T, "t") is False


@pytest.mark.behaviour("P-95")
def test_super_user_is_allowed_before_any_rule() -> None:
    authorizer = holding(acl(deny=True, operation=AclOperation.ALL), super_users=[ALICE])
    assert authorizer.may(AclSubject(), AclOperation.READ, T, "t")
    assert authorizer.may_any(AclSubject(), AclOperation.READ, T)
    assert not authorizer.may(AclSubject("User:Alice"), AclOperation.READ, T, "t")
    assert not authorizer.may(AclSubject("Group:alice"), AclOperation.READ, T, "t")


@pytest.mark.behaviour("S-339")
@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([acl("a", AclOperation.WRITE)], True),
        ([acl("a", AclOperation.ALL)], True),
        ([acl("a", AclOperation.WRITE, principal=BOB)], False),
        ([acl("a", AclOperation.WRITE, host="10.9.9.9")], False),
        ([acl("a", AclOperation.WRITE, kind=ResourceType.GROUP)], False),
        ([acl("a", AclOperation.WRITE), acl("a", AclOperation.WRITE, deny=True)], False),
        ([acl("a", AclOperation.WRITE), acl("*", AclOperation.WRITE, deny=True)], False),
        ([acl("ab", AclOperation.WRITE), acl("a", AclOperation.WRITE, deny=True, prefix=True)], False),
        ([acl("ab", AclOperation.WRITE, prefix=True), acl("a", AclOperation.WRITE, deny=True, prefix=True)], False),
        ([acl("ab", AclOperation.WRITE, prefix=True), acl("ab", AclOperation.WRITE, deny=True)], True),
        ([acl("a", AclOperation.WRITE, prefix=True), acl("ab", AclOperation.WRITE, deny=True, prefix=True)], True),
        ([acl("a", AclOperation.WRITE), acl("b", AclOperation.WRITE, deny=True)], True),
        ([acl("*", AclOperation.WRITE)], True),
        ([acl("*", AclOperation.WRITE), acl("a", AclOperation.ALL, deny=True)], True),
    ],
)
def test_authorize_by_resource_type_requires_an_undominated_allow(rules: list[StandardAcl], allowed: bool) -> None:
    assert holding(*rules).may_any(AclSubject(), AclOperation.WRITE, T) is allowed


@pytest.mark.behaviour("S-339")
def test_authorize_by_resource_type_checks_literal_operation_first() -> None:
    assert holding(is_open=True).may_any(AclSubject(), AclOperation.WRITE, T)
    # no rule implies it
    assert not holding(acl("a", AclOperation.READ)).may_any(AclSubject(), AclOperation.DESCRIBE, T)


def test_authorized_operations_are_returned_as_bits() -> None:
    authorizer = holding(
        acl("g", AclOperation.READ, kind=ResourceType.GROUP),
        acl("g", AclOperation.ALTER_CONFIGS, kind=ResourceType.GROUP),
    )
    assert (
        authorizer.authorized_operations(AclSubject(), ResourceType.GROUP, "g") == 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11
    )
    assert authorizer.authorized_operations(AclSubject(BOB), ResourceType.GROUP, "g") == 0
    result = (
        supported_operation_bits(ResourceType.TOPIC),
        supported_operation_bits(ResourceType.GROUP),
        supported_operation_bits(ResourceType.CLUSTER),
    )
    assert result == (3576, 3400, 8096)  # 342: value of a real broker without an authorizer


def test_context_without_authorizer_allows_everything() -> None:
    services: Any = SimpleNamespace(authorizer=None, audit=None)
    context = RequestContext(services, Peer("h", ("a", 1)), ApiKey.FETCH, 4, "c", 0, {})
    assert context.may(AclOperation.READ, T, "t")
    assert context.may(AclOperation.ALTER, ResourceType.CLUSTER)
    assert context.may_any(AclOperation.WRITE, T)
    assert context.authorized_operations(ResourceType.CLUSTER) == 8096
    services.authorizer = holding(
        acl("kafka-cluster", AclOperation.ALTER, principal="User:ANONYMOUS", kind=ResourceType.CLUSTER)
    )
    assert context.may(AclOperation.ALTER, ResourceType.CLUSTER)
    assert not context.may(AclOperation.READ, T, "t")
    assert not context.may_any(AclOperation.WRITE, T)
    assert context.authorized_operations(ResourceType.CLUSTER) == 1 << AclOperation.ALTER | 1 << AclOperation.DESCRIBE


@pytest.mark.parametrize("is_written_down", [False, True])
def test_connection_authorization_cache_is_cleared_by_acl_changes(*, is_written_down: bool) -> None:
    rules = (
        acl("t", AclOperation.WRITE, principal="User:ANONYMOUS"),
        acl("u", AclOperation.READ, principal="User:ANONYMOUS"),
    )
    authorizer, peer = holding(*rules), Peer("h", ("a", 1))
    audit = SimpleNamespace(log_decision=lambda *call, **how: None) if is_written_down else None
    services: Any = SimpleNamespace(authorizer=authorizer, audit=audit)
    context = RequestContext(services, peer, ApiKey.PRODUCE, 9, "c", 0, BROKER_APIS)
    requests = [(authorizer.may_write(context, name), authorizer.may_read(context, name)) for name in ("t", "u", "v")]
    assert requests == [(True, False), (False, True), (False, False)]
    cache = peer.authorization_cache
    assert (cache.writable_topics, cache.readable_topics) == ((set(), set()) if is_written_down else ({"t"}, {"u"}))
    draft = ImageBuilder(MetadataImage(others={("acl", bytes(16)): record(0, rules[0])}))
    draft.replay(metadata_records.RemoveAccessControlEntryRecord(bytes(16)))
    authorizer.publish(image := run_to_end(draft.image(2, 1)), run_to_end(draft.delta(image)))
    assert (cache.writable_topics, cache.readable_topics) == (set(), set())
    assert (authorizer.may_write(context, "t"), authorizer.may_read(context, "u")) == (False, True)


def test_cached_decisions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.security.authz.authorizer._MAX_DECISIONS", 10)
    authorizer = holding(acl("*", AclOperation.READ, principal="User:*"))
    kept = authorizer.allowed_names(AclSubject(), AclOperation.READ, T)
    for number in range(25):
        assert authorizer.may(AclSubject(), AclOperation.READ, T, f"t{number}")
        assert len(authorizer.decisions) <= 10
        assert len(kept) <= 10
        authorizer.allowed_names(AclSubject(host=f"10.0.0.{number}"), AclOperation.READ, T)
        assert len(authorizer._allowed) <= 10


def test_acl_record_with_unknown_operation_is_kept_as_unknown() -> None:
    rule = acl_from_record(metadata_records.AccessControlEntryRecord(b"i" * 16, 2, "t", 3, ALICE, "*", 99, 3))
    assert rule.operation is AclOperation.UNKNOWN


# ---------------------------------------------------------------- 10,000 changes against a model


class AclListModel:
    """Rules as a plain list, decided as S-337 states."""

    def __init__(self) -> None:
        self.rules: dict[int, StandardAcl] = {}

    def may(self, asker: AclSubject, operation: AclOperation, resource: ResourceType, name: str) -> bool:
        naming = [
            a
            for a in self.rules.values()
            if a.resource == resource
            and (name.startswith(a.name) if a.pattern is PatternType.PREFIXED else a.name in (name, "*"))
        ]
        mine = [a for a in naming if a.principal in (asker.principal, "User:*") and a.host in (asker.host, "*")]
        implied = {
            AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
            AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
        }
        exact = (operation, AclOperation.ALL)
        if any(a.permission is AclPermissionType.DENY and a.operation in exact for a in mine):
            return False
        return any(
            a.permission is AclPermissionType.ALLOW and a.operation in (*exact, *implied.get(operation, ()))
            for a in mine
        )


def test_ten_thousand_random_changes_decide_as_list_model() -> None:
    """CVE-2024-27309: a removed rule removed others of its resource as well."""
    rng = random.Random(337)
    names = ["a", "ab", "abc", "b", "ba", "*"]
    operations = [
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DESCRIBE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALL,
    ]
    askers = [AclSubject(identity, host) for identity in (ALICE, BOB) for host in ("10.0.0.1", "10.0.0.2")]
    model, image, authorizer, denied, kept = AclListModel(), MetadataImage(), Authorizer(), 0, 0
    held: dict[Any, Any] = {}
    for step in range(10_000):
        draft = ImageBuilder(image)
        if model.rules and rng.random() < 0.5 + (len(model.rules) - 12) / 50:
            number = rng.choice(list(model.rules))
            del model.rules[number]
            draft.replay(metadata_records.RemoveAccessControlEntryRecord(number.to_bytes(16, "big")))
        else:
            rule = acl(
                rng.choice(names),
                rng.choice(operations),
                deny=rng.random() < 0.25,
                prefix=rng.random() < 0.4,
                principal=rng.choice([ALICE, BOB, "User:*"]),
                host=rng.choice(["*", "*", "10.0.0.1"]),
                kind=rng.choice([T, ResourceType.GROUP]),
            )
            model.rules[step] = rule
            draft.replay(record(step, rule))
        image = run_to_end(draft.image(step, 1))
        authorizer.publish(image, run_to_end(draft.delta(image)))
        if step % 500 == 250:  # a restart: from the records of a snapshot
            again = ImageBuilder(MetadataImage())
            for result in image_records(image):
                again.replay(result)
            image = replace(run_to_end(again.image(step, 1)))
            authorizer = Authorizer()
            authorizer.publish(image, MetadataDelta.from_empty(image))
            held.clear()
        for _ in range(4):
            requests = rng.choice(askers), rng.choice(operations[:-1]), rng.choice([T, ResourceType.GROUP])
            name = rng.choice(["a", "ab", "abcd", "b", "c"])
            expected = model.may(*requests, name)
            denied += not expected
            kept += name in held.get(requests, ())
            assert expected or name not in held.get(requests, ()), "a connection holds what was allowed before"
            assert authorizer.may(*requests, name) is expected, (step, requests, name, model.rules)
            if expected:
                held[requests] = authorizer.allowed_names(*requests)
                assert name in held[requests]
    assert 5_000 < denied < 35_000
    assert kept > 10


def test_acl_removal_does_not_compare_rules_of_same_resource() -> None:
    """A request may delete all rules of a resource, and blocks other clients if each deletion compares them."""
    compared = []

    class Watched(StandardAcl):
        __hash__ = StandardAcl.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(1)
            return super().__eq__(other)

    rules = AclIndex()
    for prefix in (False, True):
        for number in range(1000):
            rules.add(b"%d" % number, Watched(*acl("*", principal=f"User:{number}", prefix=prefix)))
        assert rules.evaluate("User:500", "h", AclOperation.READ, T, "*")
        for number in reversed(range(1000)):
            rules.remove(b"%d" % number)
        assert rules.evaluate("User:500", "h", AclOperation.READ, T, "*") is None
    assert compared == []


def test_authorize_by_resource_type_is_cached_until_acls_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of all rules would be needed for each new producer."""
    requested = []
    look = AclIndex.evaluate_by_resource_type

    def watched(self: AclIndex, *call: Any) -> bool:
        requested.append(call)
        return look(self, *call)

    monkeypatch.setattr(AclIndex, "evaluate_by_resource_type", watched)
    authorizer = holding(acl("a", AclOperation.READ))
    assert [authorizer.may_any(AclSubject(), AclOperation.WRITE, T) for _ in range(3)] == [False] * 3
    assert len(requested) == 1
    assert [
        authorizer.may_any(AclSubject(BOB), AclOperation.WRITE, T),
        authorizer.may_any(AclSubject(), AclOperation.READ, T),
    ] == [
        False,
        True,
    ]
    draft = ImageBuilder(MetadataImage())
    draft.replay(record(77, acl("b", AclOperation.WRITE)))
    authorizer.publish(run_to_end(draft.image(1, 1)), run_to_end(draft.delta(MetadataImage())))
    assert authorizer.may_any(AclSubject(), AclOperation.WRITE, T)
