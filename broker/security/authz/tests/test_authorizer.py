"""Who may do what: rows of the rules with the facts' numbers, and random changes against a model that keeps a list."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

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
from ottla.jobs.time_slice import TimeSlice
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import metadata_records as m

O, R = AclOperation, ResourceType  # noqa: E741 - rows are short
ALICE, BOB = "User:alice", "User:bob"
T = R.TOPIC


def acl(
    name: str = "t",
    operation: AclOperation = O.READ,
    *,
    deny: bool = False,
    prefix: bool = False,
    who: str = ALICE,
    host: str = "*",
    kind: ResourceType = T,
) -> StandardAcl:
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return StandardAcl(
        kind, name, pattern, who, host, operation, AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    )


def record(number: int, rule: StandardAcl) -> m.AccessControlEntryRecord:
    ints = [int(x) if isinstance(x, int) else x for x in rule]
    return m.AccessControlEntryRecord(number.to_bytes(16, "big"), *ints)


class AclSubject:
    def __init__(self, principal: str = ALICE, host: str = "10.0.0.1") -> None:
        self.principal, self.host = principal, host


def holding(*rules: StandardAcl, **how: Any) -> Authorizer:
    draft = ImageBuilder(MetadataImage())
    for number, rule in enumerate(rules):
        draft.replay(record(number, rule))
    image = draft.image(1, 1)
    out = Authorizer(**how)
    out.publish(image, draft.delta(image))
    return out


@pytest.mark.parametrize(
    ("rules", "operation", "name", "allowed"),
    [
        # 336: principal, host, operation, name
        ([acl()], O.READ, "t", True),
        ([acl(who=BOB)], O.READ, "t", False),
        ([acl(who="User:*")], O.READ, "t", True),
        ([acl(who="Group:alice")], O.READ, "t", False),
        ([acl(host="10.0.0.1")], O.READ, "t", True),
        ([acl(host="10.0.0.2")], O.READ, "t", False),
        ([acl(operation=O.WRITE)], O.READ, "t", False),
        ([acl(operation=O.ALL)], O.READ, "t", True),
        ([acl("*")], O.READ, "t", True),
        ([acl("x", prefix=True)], O.READ, "xy", True),
        ([acl("xy", prefix=True)], O.READ, "xy", True),
        ([acl("xy", prefix=True)], O.READ, "x", False),
        ([acl("x")], O.READ, "xy", False),
        ([acl("*", prefix=True)], O.READ, "x", False),
        ([acl(kind=R.GROUP)], O.READ, "t", False),
        # 95: what implies what
        *[([acl(operation=o)], O.DESCRIBE, "t", True) for o in (O.READ, O.WRITE, O.DELETE, O.ALTER, O.ALL)],
        *[([acl(operation=o)], O.DESCRIBE, "t", False) for o in (O.CREATE, O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS)],
        ([acl(operation=O.ALTER_CONFIGS)], O.DESCRIBE_CONFIGS, "t", True),
        ([acl(operation=O.ALTER)], O.DESCRIBE_CONFIGS, "t", False),
        ([acl(operation=O.DESCRIBE)], O.READ, "t", False),
        # 337: any deny, then any allow
        ([acl(), acl(deny=True)], O.READ, "t", False),
        ([acl(deny=True, operation=O.ALL), acl()], O.READ, "t", False),
        ([acl("t"), acl("*", deny=True)], O.READ, "t", False),
        ([acl("tt"), acl("t", prefix=True, deny=True)], O.READ, "tt", False),
        ([acl(), acl(deny=True, who=BOB)], O.READ, "t", True),
        ([acl(), acl(deny=True, host="10.0.0.2")], O.READ, "t", True),
        ([acl(), acl(deny=True, operation=O.DESCRIBE)], O.READ, "t", True),
        ([acl(), acl(deny=True, operation=O.DESCRIBE)], O.DESCRIBE, "t", False),
        ([acl(operation=O.DESCRIBE), acl(deny=True)], O.DESCRIBE, "t", True),
    ],
)
def test_rules_decide(rules: list[StandardAcl], operation: AclOperation, name: str, allowed: bool) -> None:
    for order in (rules, rules[::-1]):
        assert holding(*order).may(AclSubject(), operation, T, name) is allowed


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], True),  # 337: nobody said anything about it
        ([acl("other")], True),
        ([acl(who=BOB)], False),
        ([acl("*", who=BOB)], False),
        ([acl("t", who=BOB, prefix=True)], False),
        ([acl(who=BOB, deny=True)], False),
    ],
)
def test_who_is_let_in_where_nothing_was_said(rules: list[StandardAcl], allowed: bool) -> None:
    assert holding(*rules, is_open=True).may(AclSubject(), O.READ, T, "t") is allowed
    assert holding(*rules).may(AclSubject(), O.READ, T, "t") is False


def test_super_users_come_first() -> None:
    authorizer = holding(acl(deny=True, operation=O.ALL), super_users=[ALICE])
    assert authorizer.may(AclSubject(), O.READ, T, "t")
    assert authorizer.may_any(AclSubject(), O.READ, T)
    assert not authorizer.may(AclSubject("User:Alice"), O.READ, T, "t")
    assert not authorizer.may(AclSubject("Group:alice"), O.READ, T, "t")


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ([], False),
        ([acl("a", O.WRITE)], True),
        ([acl("a", O.ALL)], True),
        ([acl("a", O.WRITE, who=BOB)], False),
        ([acl("a", O.WRITE, host="10.9.9.9")], False),
        ([acl("a", O.WRITE, kind=R.GROUP)], False),
        ([acl("a", O.WRITE), acl("a", O.WRITE, deny=True)], False),
        ([acl("a", O.WRITE), acl("*", O.WRITE, deny=True)], False),
        ([acl("ab", O.WRITE), acl("a", O.WRITE, deny=True, prefix=True)], False),
        ([acl("ab", O.WRITE, prefix=True), acl("a", O.WRITE, deny=True, prefix=True)], False),
        ([acl("ab", O.WRITE, prefix=True), acl("ab", O.WRITE, deny=True)], True),
        ([acl("a", O.WRITE, prefix=True), acl("ab", O.WRITE, deny=True, prefix=True)], True),
        ([acl("a", O.WRITE), acl("b", O.WRITE, deny=True)], True),
        ([acl("*", O.WRITE)], True),
        ([acl("*", O.WRITE), acl("a", O.ALL, deny=True)], True),
    ],
)
def test_anything_of_a_kind(rules: list[StandardAcl], allowed: bool) -> None:
    assert holding(*rules).may_any(AclSubject(), O.WRITE, T) is allowed  # 339


def test_a_plain_look_comes_first_where_anything_of_a_kind_is_asked_for() -> None:
    assert holding(is_open=True).may_any(AclSubject(), O.WRITE, T)
    assert not holding(acl("a", O.READ)).may_any(AclSubject(), O.DESCRIBE, T)  # nothing implies it


def test_operations_are_told_as_bits() -> None:
    authorizer = holding(acl("g", O.READ, kind=R.GROUP), acl("g", O.ALTER_CONFIGS, kind=R.GROUP))
    assert authorizer.authorized_operations(AclSubject(), R.GROUP, "g") == 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11
    assert authorizer.authorized_operations(AclSubject(BOB), R.GROUP, "g") == 0
    told = supported_operation_bits(R.TOPIC), supported_operation_bits(R.GROUP), supported_operation_bits(R.CLUSTER)
    assert told == (3576, 3400, 8096)  # 342: what a real broker without an authorizer says


def test_without_an_authorizer_everybody_may() -> None:
    services: Any = SimpleNamespace(authorizer=None, audit=None)
    env: Any = SimpleNamespace(monotonic_ms=lambda: 0.0)
    context = RequestContext(services, Peer("h", ("a", 1)), ApiKey.FETCH, 4, "c", 0, TimeSlice(env), {})
    assert context.may(O.READ, T, "t")
    assert context.may(O.ALTER, R.CLUSTER)
    assert context.may_any(O.WRITE, T)
    assert context.authorized_operations(R.CLUSTER) == 8096
    services.authorizer = holding(acl("kafka-cluster", O.ALTER, who="User:ANONYMOUS", kind=R.CLUSTER))
    assert context.may(O.ALTER, R.CLUSTER)
    assert not context.may(O.READ, T, "t")
    assert not context.may_any(O.WRITE, T)
    assert context.authorized_operations(R.CLUSTER) == 1 << O.ALTER | 1 << O.DESCRIBE


@pytest.mark.parametrize("is_written_down", [False, True])
def test_what_a_connection_may_is_kept_with_it_until_the_rules_change(*, is_written_down: bool) -> None:
    rules = acl("t", O.WRITE, who="User:ANONYMOUS"), acl("u", O.READ, who="User:ANONYMOUS")
    authorizer, peer = holding(*rules), Peer("h", ("a", 1))
    audit = SimpleNamespace(log_decision=lambda *what, **how: None) if is_written_down else None
    services: Any = SimpleNamespace(authorizer=authorizer, audit=audit)
    env: Any = SimpleNamespace(monotonic_ms=lambda: 0.0)
    context = RequestContext(services, peer, ApiKey.PRODUCE, 9, "c", 0, TimeSlice(env), {})
    asked = [(authorizer.may_write(context, name), authorizer.may_read(context, name)) for name in ("t", "u", "v")]
    assert asked == [(True, False), (False, True), (False, False)]
    assert (peer.writable_topics, peer.readable_topics) == ((set(), set()) if is_written_down else ({"t"}, {"u"}))
    draft = ImageBuilder(MetadataImage(others={("acl", bytes(16)): record(0, rules[0])}))
    draft.replay(m.RemoveAccessControlEntryRecord(bytes(16)))
    authorizer.publish(image := draft.image(2, 1), draft.delta(image))
    assert (peer.writable_topics, peer.readable_topics) == (set(), set())
    assert (authorizer.may_write(context, "t"), authorizer.may_read(context, "u")) == (False, True)


def test_no_more_is_kept_than_decisions_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.security.authz.authorizer._MAX_DECISIONS", 10)
    authorizer = holding(acl("*", O.READ, who="User:*"))
    kept = authorizer.allowed_names(AclSubject(), O.READ, T)
    for number in range(25):
        assert authorizer.may(AclSubject(), O.READ, T, f"t{number}")
        assert len(authorizer.decisions) <= 10
        assert len(kept) <= 10
        authorizer.allowed_names(AclSubject(host=f"10.0.0.{number}"), O.READ, T)
        assert len(authorizer._allowed) <= 10


def test_a_code_nobody_knows_is_kept_as_unknown() -> None:
    rule = acl_from_record(m.AccessControlEntryRecord(b"i" * 16, 2, "t", 3, ALICE, "*", 99, 3))
    assert rule.operation is O.UNKNOWN


# ---------------------------------------------------------------- 10,000 changes against a model


class AclListModel:
    """The rules as a plain list, and the sentence of item 337 written down."""

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
        implied = {O.DESCRIBE: (O.READ, O.WRITE, O.DELETE, O.ALTER), O.DESCRIBE_CONFIGS: (O.ALTER_CONFIGS,)}
        exact = (operation, O.ALL)
        if any(a.permission is AclPermissionType.DENY and a.operation in exact for a in mine):
            return False
        return any(
            a.permission is AclPermissionType.ALLOW and a.operation in (*exact, *implied.get(operation, ()))
            for a in mine
        )


def test_ten_thousand_changes_decide_as_the_model_does() -> None:
    """CVE-2024-27309: a rule that was removed took others of its resource along."""
    chance = random.Random(337)
    names = ["a", "ab", "abc", "b", "ba", "*"]
    operations = [O.READ, O.WRITE, O.DESCRIBE, O.ALTER, O.ALTER_CONFIGS, O.DESCRIBE_CONFIGS, O.ALL]
    askers = [AclSubject(who, host) for who in (ALICE, BOB) for host in ("10.0.0.1", "10.0.0.2")]
    model, image, authorizer, denied, kept = AclListModel(), MetadataImage(), Authorizer(), 0, 0
    held: dict[Any, Any] = {}
    for step in range(10_000):
        draft = ImageBuilder(image)
        if model.rules and chance.random() < 0.5 + (len(model.rules) - 12) / 50:
            number = chance.choice(list(model.rules))
            del model.rules[number]
            draft.replay(m.RemoveAccessControlEntryRecord(number.to_bytes(16, "big")))
        else:
            rule = acl(
                chance.choice(names),
                chance.choice(operations),
                deny=chance.random() < 0.25,
                prefix=chance.random() < 0.4,
                who=chance.choice([ALICE, BOB, "User:*"]),
                host=chance.choice(["*", "*", "10.0.0.1"]),
                kind=chance.choice([T, R.GROUP]),
            )
            model.rules[step] = rule
            draft.replay(record(step, rule))
        image = draft.image(step, 1)
        authorizer.publish(image, draft.delta(image))
        if step % 500 == 250:  # a restart: from the records a snapshot holds
            again = ImageBuilder(MetadataImage())
            for told in image_records(image):
                again.replay(told)
            image = replace(again.image(step, 1))
            authorizer = Authorizer()
            authorizer.publish(image, MetadataDelta.from_empty(image))
            held.clear()
        for _ in range(4):
            asked = chance.choice(askers), chance.choice(operations[:-1]), chance.choice([T, R.GROUP])
            name = chance.choice(["a", "ab", "abcd", "b", "c"])
            expected = model.may(*asked, name)
            denied += not expected
            kept += name in held.get(asked, ())
            assert expected or name not in held.get(asked, ()), "a connection holds what was allowed before"
            assert authorizer.may(*asked, name) is expected, (step, asked, name, model.rules)
            if expected:
                held[asked] = authorizer.allowed_names(*asked)
                assert name in held[asked]
    assert 5_000 < denied < 35_000
    assert kept > 10


def test_one_of_thousands_of_rules_that_name_the_same_is_dropped_without_looking_at_the_others() -> None:
    """All of them may go with one request, and nobody else is served meanwhile."""
    compared = []

    class Watched(StandardAcl):
        __hash__ = StandardAcl.__hash__

        def __eq__(self, other: object) -> bool:
            compared.append(1)
            return super().__eq__(other)

    rules = AclIndex()
    for prefix in (False, True):
        for number in range(1000):
            rules.add(b"%d" % number, Watched(*acl("*", who=f"User:{number}", prefix=prefix)))
        assert rules.evaluate("User:500", "h", O.READ, T, "*")
        for number in reversed(range(1000)):
            rules.remove(b"%d" % number)
        assert rules.evaluate("User:500", "h", O.READ, T, "*") is None
    assert compared == []


def test_whether_there_is_anything_is_looked_for_once_until_rules_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs a look at every rule there is, for each producer that comes."""
    asked = []
    look = AclIndex.evaluate_by_resource_type

    def watched(self: AclIndex, *what: Any) -> bool:
        asked.append(what)
        return look(self, *what)

    monkeypatch.setattr(AclIndex, "evaluate_by_resource_type", watched)
    authorizer = holding(acl("a", O.READ))
    assert [authorizer.may_any(AclSubject(), O.WRITE, T) for _ in range(3)] == [False] * 3
    assert len(asked) == 1
    assert [authorizer.may_any(AclSubject(BOB), O.WRITE, T), authorizer.may_any(AclSubject(), O.READ, T)] == [
        False,
        True,
    ]
    draft = ImageBuilder(MetadataImage())
    draft.replay(record(77, acl("b", O.WRITE)))
    authorizer.publish(draft.image(1, 1), draft.delta(MetadataImage()))
    assert authorizer.may_any(AclSubject(), O.WRITE, T)
