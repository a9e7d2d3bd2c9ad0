"""Access rules at the controller: rows of S-340 and S-341, and how the image keeps them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ottla.controller.control import acls
from ottla.controller.control.acls import AclBindingFilter, create_acls, delete_acls
from ottla.controller.control.controller_result import ControllerResult
from ottla.controller.metadata.acl import AclOperation, AclPermissionType, PatternType, ResourceType, StandardAcl
from ottla.controller.metadata.image import MetadataImage, image_records
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest

ON = {"authorizer.class.name": "x"}
ANY = AclBindingFilter(ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)


def acl_creation(*values: Any) -> AclCreation:
    """(resource, name, pattern, principal, host, operation, permission), the last ones left out."""
    usual = [2, "t", 3, "User:a", "*", 3, 3]
    return AclCreation(*[*values, *usual[len(values) :]])


class AclControlFixture:
    """The rules as the controller keeps them."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._ids = (bytes([7, number >> 8, number & 255]).ljust(16, b"-") for number in itertools.count())

    def create(self, *rows: AclCreation) -> list[tuple[int, str | None]]:
        decision = run_to_end(create_acls(self.image, CreateAclsRequest(list(rows)), self._ids.__next__, ON))
        self._apply(decision)
        return [(row.error_code, row.error_message) for row in decision.response.results]

    def delete(self, *rows: DeleteAclsFilter) -> ControllerResult:
        decision = run_to_end(delete_acls(self.image, DeleteAclsRequest(list(rows)), ON))
        self._apply(decision)
        return decision

    def _apply(self, decision: ControllerResult) -> None:
        draft = ImageBuilder(self.image)
        for record in decision.records:
            draft.replay(record)
        self.image = run_to_end(draft.image(self.image.offset + len(decision.records), 1))


def delete_filter(f: AclBindingFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        int(f.resource), f.name, int(f.pattern), f.principal, f.host, int(f.operation), int(f.permission)
    )


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (acl_creation(), 0),
        (acl_creation(4, "kafka-cluster"), 0),
        (acl_creation(4, "other"), 42),
        (acl_creation(2, ""), 42),
        (acl_creation(0), 42),
        (acl_creation(1), 42),
        (acl_creation(99), 42),
        *[(acl_creation(2, "t", pattern), 42) for pattern in (0, 1, 2, 5)],
        (acl_creation(2, "t", 4), 0),
        *[(acl_creation(2, "t", 3, "User:a", "*", operation), 42) for operation in (0, 1, 16)],
        (acl_creation(2, "t", 3, "User:a", "*", 2), 0),
        *[(acl_creation(2, "t", 3, "User:a", "*", 3, permission), 42) for permission in (0, 1, 4)],
        (acl_creation(2, "t", 3, "User:a", "*", 3, 2), 0),
        (acl_creation(2, "t", 3, "alice"), 42),
        (acl_creation(2, "t", 3, ""), 42),
        (acl_creation(2, "t", 3, "User:nobody at all"), 0),
    ],
)
def test_a_row_is_judged_on_its_own(row: AclCreation, code: int) -> None:
    kept = AclControlFixture()
    told = kept.create(acl_creation(2, "before"), row, acl_creation(2, "behind"))  # 340
    assert [code for code, _ in told] == [0, code, 0]
    assert (told[1][1] == "") is (code == 0)
    assert told[0] == (0, "")  # as Kafka leaves it, and not null
    assert len(kept.image.acls) == 2 + (code == 0)


def test_what_is_there_is_made_again_silently() -> None:
    kept = AclControlFixture()
    assert kept.create(acl_creation(), acl_creation()) == [(0, ""), (0, "")]
    before = kept.image
    assert kept.create(acl_creation()) == [(0, "")]
    assert dict(kept.image.acls) == dict(before.acls)
    assert len(kept.image.others) == 1


T = ResourceType.TOPIC


@pytest.mark.parametrize(
    ("changed", "matches"),
    [
        ({}, ["t lit", "* lit", "t pre", "te pre", "g"]),
        ({"resource": T}, ["t lit", "* lit", "t pre", "te pre"]),
        ({"resource": T, "name": "t"}, ["t lit", "t pre"]),
        ({"resource": T, "name": "test"}, []),
        ({"resource": T, "name": "test", "pattern": PatternType.MATCH}, ["* lit", "t pre", "te pre"]),
        ({"resource": T, "name": "t", "pattern": PatternType.MATCH}, ["t lit", "* lit", "t pre"]),
        ({"resource": T, "pattern": PatternType.MATCH}, ["t lit", "* lit", "t pre", "te pre"]),
        ({"resource": T, "name": "t", "pattern": PatternType.LITERAL}, ["t lit"]),
        ({"resource": T, "name": "*", "pattern": PatternType.LITERAL}, ["* lit"]),
        ({"resource": T, "pattern": PatternType.PREFIXED}, ["t pre", "te pre"]),
        ({"principal": "User:b"}, ["g"]),
        ({"principal": "User:*"}, []),
        ({"host": "h"}, ["te pre"]),
        ({"operation": AclOperation.WRITE}, ["* lit"]),
        ({"operation": AclOperation.ALL}, []),
        ({"permission": AclPermissionType.DENY}, ["t pre"]),
    ],
)
def test_filters(changed: dict[str, Any], matches: list[str]) -> None:
    rules = {
        "t lit": acl_creation(),
        "* lit": acl_creation(2, "*", 3, "User:a", "*", 4),
        "t pre": acl_creation(2, "t", 4, "User:a", "*", 3, 2),
        "te pre": acl_creation(2, "te", 4, "User:a", "h"),
        "g": acl_creation(3, "g", 3, "User:b"),
    }
    kept = AclControlFixture()
    kept.create(*rules.values())
    found = run_to_end(acls.matching_acls(kept.image, ANY._replace(**changed)))  # 341
    assert {acls.acl_from_creation(rules[name]) for name in matches} == set(found)
    row = kept.delete(delete_filter(ANY._replace(**changed))).response.filter_results[0]
    assert {_acl(x) for x in row.matching_acls} == set(found)
    assert set(kept.image.acls) == {acls.acl_from_creation(r) for name, r in rules.items() if name not in matches}


def _acl(told: DeleteAclsMatchingAcl) -> StandardAcl:
    return StandardAcl(
        ResourceType(told.resource_type),
        told.resource_name,
        PatternType(told.pattern_type),
        told.principal,
        told.host,
        AclOperation(told.operation),
        AclPermissionType(told.permission_type),
    )


def test_two_filters_tell_of_the_same_rule_and_it_is_removed_once() -> None:
    kept = AclControlFixture()
    kept.create(acl_creation(), acl_creation(3, "g"))
    decision = kept.delete(
        delete_filter(ANY._replace(resource=T)), delete_filter(ANY), delete_filter(ANY._replace(name="none"))
    )
    assert [len(r.matching_acls) for r in decision.response.filter_results] == [1, 2, 0]
    assert len(decision.records) == 2
    assert (len(kept.image.acls), len(kept.image.others)) == (0, 0)


def test_a_filter_nobody_knows_finds_nothing_and_says_so() -> None:
    kept = AclControlFixture()
    kept.create(acl_creation())
    rows = kept.delete(
        *(delete_filter(ANY._replace(**{f: 0})) for f in ("resource", "pattern", "operation", "permission"))
    )
    assert [r.error_code for r in rows.response.filter_results] == [ErrorCode.INVALID_REQUEST] * 4
    assert len(kept.image.acls) == 1


def test_too_many_at_once_are_refused_and_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MAX_ACLS_PER_REQUEST", 3)
    kept = AclControlFixture()
    kept.create(acl_creation(2, "a"), acl_creation(2, "b"), acl_creation(2, "c"))
    with pytest.raises(ProtocolError) as refused:
        kept.create(*(acl_creation(3, name) for name in "abcd"))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    kept.create(acl_creation(2, "d"))
    with pytest.raises(ProtocolError) as refused:
        kept.delete(delete_filter(ANY))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(kept.image.acls) == 4


def test_filters_that_find_the_same_rules_share_their_rows_and_a_filter_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[AclBindingFilter] = []
    usual = acls.matching_acls

    def found(image: MetadataImage, wanted: AclBindingFilter) -> Any:
        looked_up.append(wanted)
        return usual(image, wanted)

    monkeypatch.setattr(acls, "matching_acls", found)
    kept = AclControlFixture()
    kept.create(*(acl_creation(2, f"t{number}") for number in range(50)))
    every, topics = ANY, ANY._replace(resource=T)
    told = kept.delete(*(delete_filter(f) for f in (every, topics, every) * 100)).response.filter_results
    assert looked_up == [every, topics]
    assert [len(row.matching_acls) for row in told] == [50] * 300
    assert len({id(acl) for row in told for acl in row.matching_acls}) == 50
    assert len(kept.image.acls) == 0


@pytest.mark.parametrize("other", [{}, {"resource": T}], ids=["the same filter", "another one"])
def test_what_is_told_again_is_bounded_and_beyond_it_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    kept = AclControlFixture()
    kept.create(acl_creation(2, "a"), acl_creation(2, "b" * 100))
    names = len("a" + "b" * 100) + 2 * len("User:a*")
    monkeypatch.setattr(acls, "MAX_REPEATED_ACL_CHARS", 2 * (2 * acls.REPEATED_ACL_ROW_CHARS + names))
    every, again = delete_filter(ANY), delete_filter(ANY._replace(**other))
    with pytest.raises(ProtocolError) as refused:
        kept.delete(every, again, again, again)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(kept.image.acls) == 2
    assert len(kept.delete(every, again, again).records) == 2


def test_a_short_request_cannot_ask_for_millions_of_rows() -> None:
    kept = AclControlFixture()
    kept.create(*(acl_creation(2, f"topic-{number:06}") for number in range(2000)))
    with pytest.raises(ProtocolError) as refused:
        kept.delete(*[delete_filter(ANY)] * 1000)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_without_an_authorizer_there_are_no_rules() -> None:
    for steps in (
        create_acls(MetadataImage(), CreateAclsRequest([acl_creation()]), lambda: b"", {}),
        delete_acls(MetadataImage(), DeleteAclsRequest([delete_filter(ANY)]), {}),
    ):
        with pytest.raises(ProtocolError) as refused:
            run_to_end(steps)
        assert refused.value.code is ErrorCode.SECURITY_DISABLED


def test_rules_come_back_from_a_snapshot_and_an_older_image_keeps_its_own() -> None:
    kept = AclControlFixture()
    kept.create(acl_creation(), acl_creation(2, "p", 4))
    before = kept.image
    kept.delete(delete_filter(ANY._replace(name="t")))
    draft = ImageBuilder(MetadataImage())
    for record in image_records(before):
        draft.replay(record)
    assert dict(run_to_end(draft.image(1, 1)).acls) == dict(before.acls)
    assert (len(before.acls), len(kept.image.acls)) == (2, 1)


def test_a_rule_under_two_ids_stays_while_one_of_them_does() -> None:
    rule = acl_creation()
    draft = ImageBuilder(MetadataImage())
    records = []
    for number in (1, 2):  # as no controller would write it
        decision = run_to_end(
            create_acls(MetadataImage(), CreateAclsRequest([rule]), lambda n=number: bytes([n]) * 16, ON)
        )
        records += decision.records
    for record in records:
        draft.replay(record)
    image = run_to_end(draft.image(1, 1))
    assert dict(image.acls) == {acls.acl_from_creation(rule): b"\x02" * 16}
