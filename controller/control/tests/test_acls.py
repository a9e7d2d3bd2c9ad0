"""ACL changes at the controller (S-340, S-341), and ACLs in the metadata image."""

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
    """Return a creation of (resource, name, pattern, principal, host, operation, permission); trailing values have
    defaults.
    """
    usual = [2, "t", 3, "User:a", "*", 3, 3]
    return AclCreation(*[*values, *usual[len(values) :]])


class AclControlFixture:
    """ACL decisions applied to a metadata image."""

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
def test_create_acls_invalid_row_returns_error_for_that_row_only(row: AclCreation, code: int) -> None:
    fixture = AclControlFixture()
    results = fixture.create(acl_creation(2, "before"), row, acl_creation(2, "behind"))  # 340
    assert [code for code, _ in results] == [0, code, 0]
    assert (results[1][1] == "") is (code == 0)
    assert results[0] == (0, "")  # empty as in Kafka, not null
    assert len(fixture.image.acls) == 2 + (code == 0)


def test_create_acls_existing_acl_succeeds_without_change() -> None:
    fixture = AclControlFixture()
    assert fixture.create(acl_creation(), acl_creation()) == [(0, ""), (0, "")]
    before = fixture.image
    assert fixture.create(acl_creation()) == [(0, "")]
    assert dict(fixture.image.acls) == dict(before.acls)
    assert len(fixture.image.others) == 1


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
def test_matching_acls_and_delete_acls_apply_filter(changed: dict[str, Any], matches: list[str]) -> None:
    rules = {
        "t lit": acl_creation(),
        "* lit": acl_creation(2, "*", 3, "User:a", "*", 4),
        "t pre": acl_creation(2, "t", 4, "User:a", "*", 3, 2),
        "te pre": acl_creation(2, "te", 4, "User:a", "h"),
        "g": acl_creation(3, "g", 3, "User:b"),
    }
    fixture = AclControlFixture()
    fixture.create(*rules.values())
    found = run_to_end(acls.matching_acls(fixture.image, ANY._replace(**changed)))  # 341
    assert {acls.acl_from_creation(rules[name]) for name in matches} == set(found)
    row = fixture.delete(delete_filter(ANY._replace(**changed))).response.filter_results[0]
    assert {_acl(x) for x in row.matching_acls} == set(found)
    assert set(fixture.image.acls) == {acls.acl_from_creation(r) for name, r in rules.items() if name not in matches}


def _acl(results: DeleteAclsMatchingAcl) -> StandardAcl:
    return StandardAcl(
        ResourceType(results.resource_type),
        results.resource_name,
        PatternType(results.pattern_type),
        results.principal,
        results.host,
        AclOperation(results.operation),
        AclPermissionType(results.permission_type),
    )


def test_delete_acls_matched_by_two_filters_are_removed_once() -> None:
    fixture = AclControlFixture()
    fixture.create(acl_creation(), acl_creation(3, "g"))
    decision = fixture.delete(
        delete_filter(ANY._replace(resource=T)), delete_filter(ANY), delete_filter(ANY._replace(name="none"))
    )
    assert [len(r.matching_acls) for r in decision.response.filter_results] == [1, 2, 0]
    assert len(decision.records) == 2
    assert (len(fixture.image.acls), len(fixture.image.others)) == (0, 0)


def test_delete_acls_unknown_filter_value_returns_invalid_request() -> None:
    fixture = AclControlFixture()
    fixture.create(acl_creation())
    rows = fixture.delete(
        *(delete_filter(ANY._replace(**{f: 0})) for f in ("resource", "pattern", "operation", "permission"))
    )
    pattern, entry = "Unknown patternFilter.", "Unknown entryFilter."
    assert [(r.error_code, r.error_message) for r in rows.response.filter_results] == [
        (ErrorCode.INVALID_REQUEST, message) for message in (pattern, pattern, entry, entry)
    ]
    assert len(fixture.image.acls) == 1


def test_acl_request_above_record_limit_raises_and_changes_no_acl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MAX_ACLS_PER_REQUEST", 3)
    fixture = AclControlFixture()
    fixture.create(acl_creation(2, "a"), acl_creation(2, "b"), acl_creation(2, "c"))
    with pytest.raises(ProtocolError) as refused:
        fixture.create(*(acl_creation(3, name) for name in "abcd"))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    fixture.create(acl_creation(2, "d"))
    with pytest.raises(ProtocolError) as refused:
        fixture.delete(delete_filter(ANY))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(fixture.image.acls) == 4


def test_delete_acls_equal_filters_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups: list[AclBindingFilter] = []
    usual = acls.matching_acls

    def found(image: MetadataImage, wanted: AclBindingFilter) -> Any:
        lookups.append(wanted)
        return usual(image, wanted)

    monkeypatch.setattr(acls, "matching_acls", found)
    fixture = AclControlFixture()
    fixture.create(*(acl_creation(2, f"t{number}") for number in range(50)))
    every, topics = ANY, ANY._replace(resource=T)
    results = fixture.delete(*(delete_filter(f) for f in (every, topics, every) * 100)).response.filter_results
    assert lookups == [every, topics]
    assert [len(row.matching_acls) for row in results] == [50] * 300
    assert len({id(acl) for row in results for acl in row.matching_acls}) == 50
    assert len(fixture.image.acls) == 0


@pytest.mark.parametrize("other", [{}, {"resource": T}], ids=["the same filter", "another one"])
def test_delete_acls_response_above_size_limit_raises_invalid_request(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    fixture = AclControlFixture()
    fixture.create(acl_creation(2, "a"), acl_creation(2, "b" * 100))
    names = len("a" + "b" * 100) + 2 * len("User:a*")
    monkeypatch.setattr(acls, "MAX_REPEATED_ACL_CHARS", 2 * (2 * acls.REPEATED_ACL_ROW_CHARS + names))
    every, again = delete_filter(ANY), delete_filter(ANY._replace(**other))
    with pytest.raises(ProtocolError) as refused:
        fixture.delete(every, again, again, again)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(fixture.image.acls) == 2
    assert len(fixture.delete(every, again, again).records) == 2


def test_delete_acls_repeated_filters_with_millions_of_rows_raise_invalid_request() -> None:
    fixture = AclControlFixture()
    fixture.create(*(acl_creation(2, f"topic-{number:06}") for number in range(2000)))
    with pytest.raises(ProtocolError) as refused:
        fixture.delete(*[delete_filter(ANY)] * 1000)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_acl_requests_without_authorizer_raise_security_disabled() -> None:
    for steps in (
        create_acls(MetadataImage(), CreateAclsRequest([acl_creation()]), lambda: b"", {}),
        delete_acls(MetadataImage(), DeleteAclsRequest([delete_filter(ANY)]), {}),
    ):
        with pytest.raises(ProtocolError) as refused:
            run_to_end(steps)
        assert refused.value.code is ErrorCode.SECURITY_DISABLED


def test_acls_survive_snapshot_and_older_image_is_unchanged() -> None:
    fixture = AclControlFixture()
    fixture.create(acl_creation(), acl_creation(2, "p", 4))
    before = fixture.image
    fixture.delete(delete_filter(ANY._replace(name="t")))
    draft = ImageBuilder(MetadataImage())
    for record in image_records(before):
        draft.replay(record)
    assert dict(run_to_end(draft.image(1, 1)).acls) == dict(before.acls)
    assert (len(before.acls), len(fixture.image.acls)) == (2, 1)


def test_acl_with_two_ids_stays_until_both_are_removed() -> None:
    rule = acl_creation()
    draft = ImageBuilder(MetadataImage())
    records = []
    for number in (1, 2):  # no controller writes this
        decision = run_to_end(
            create_acls(MetadataImage(), CreateAclsRequest([rule]), lambda n=number: bytes([n]) * 16, ON)
        )
        records += decision.records
    for record in records:
        draft.replay(record)
    image = run_to_end(draft.image(1, 1))
    assert dict(image.acls) == {acls.acl_from_creation(rule): b"\x02" * 16}
