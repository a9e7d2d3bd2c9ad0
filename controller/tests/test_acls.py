"""Access rules at the controller: rows of items 340 and 341, and how the image keeps them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ottla.controller import acls
from ottla.controller.acl import Acl, Operation, Pattern, Permission, Resource
from ottla.controller.acls import Filter, create_acls, delete_acls
from ottla.controller.decision import Decision, at_once
from ottla.controller.draft import Draft
from ottla.controller.image import Image, records_of
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import create_acls as ca
from ottla.wire.messages import delete_acls as da

ON = {"authorizer.class.name": "x"}
ANY = Filter(Resource.ANY, None, Pattern.ANY, None, None, Operation.ANY, Permission.ANY)


def asked(*values: Any) -> ca.AclCreation:
    """(resource, name, pattern, principal, host, operation, permission), the last ones left out."""
    usual = [2, "t", 3, "User:a", "*", 3, 3]
    return ca.AclCreation(*[*values, *usual[len(values) :]])


class Kept:
    """The rules as the controller keeps them."""

    def __init__(self) -> None:
        self.image = Image()
        self._ids = (bytes([7, number >> 8, number & 255]).ljust(16, b"-") for number in itertools.count())

    def create(self, *rows: ca.AclCreation) -> list[tuple[int, str | None]]:
        decision = at_once(create_acls(self.image, ca.CreateAclsRequest(list(rows)), self._ids.__next__, ON))
        self._take(decision)
        return [(row.error_code, row.error_message) for row in decision.response.results]

    def delete(self, *rows: da.DeleteAclsFilter) -> Decision:
        decision = at_once(delete_acls(self.image, da.DeleteAclsRequest(list(rows)), ON))
        self._take(decision)
        return decision

    def _take(self, decision: Decision) -> None:
        draft = Draft(self.image)
        for record in decision.records:
            draft.take(record)
        self.image = draft.image(self.image.offset + len(decision.records), 1)


def wanted(f: Filter) -> da.DeleteAclsFilter:
    return da.DeleteAclsFilter(
        int(f.resource), f.name, int(f.pattern), f.principal, f.host, int(f.operation), int(f.permission)
    )


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (asked(), 0),
        (asked(4, "kafka-cluster"), 0),
        (asked(4, "other"), 42),
        (asked(2, ""), 42),
        (asked(0), 42),
        (asked(1), 42),
        (asked(99), 42),
        *[(asked(2, "t", pattern), 42) for pattern in (0, 1, 2, 5)],
        (asked(2, "t", 4), 0),
        *[(asked(2, "t", 3, "User:a", "*", operation), 42) for operation in (0, 1, 16)],
        (asked(2, "t", 3, "User:a", "*", 2), 0),
        *[(asked(2, "t", 3, "User:a", "*", 3, permission), 42) for permission in (0, 1, 4)],
        (asked(2, "t", 3, "User:a", "*", 3, 2), 0),
        (asked(2, "t", 3, "alice"), 42),
        (asked(2, "t", 3, ""), 42),
        (asked(2, "t", 3, "User:nobody at all"), 0),
    ],
)
def test_a_row_is_judged_on_its_own(row: ca.AclCreation, code: int) -> None:
    kept = Kept()
    told = kept.create(asked(2, "before"), row, asked(2, "behind"))  # 340
    assert [code for code, _ in told] == [0, code, 0]
    assert (told[1][1] == "") is (code == 0)
    assert told[0] == (0, "")  # as Kafka leaves it, and not null
    assert len(kept.image.acls) == 2 + (code == 0)


def test_what_is_there_is_made_again_silently() -> None:
    kept = Kept()
    assert kept.create(asked(), asked()) == [(0, ""), (0, "")]
    before = kept.image
    assert kept.create(asked()) == [(0, "")]
    assert dict(kept.image.acls) == dict(before.acls)
    assert len(kept.image.others) == 1


T = Resource.TOPIC


@pytest.mark.parametrize(
    ("changed", "matches"),
    [
        ({}, ["t lit", "* lit", "t pre", "te pre", "g"]),
        ({"resource": T}, ["t lit", "* lit", "t pre", "te pre"]),
        ({"resource": T, "name": "t"}, ["t lit", "t pre"]),
        ({"resource": T, "name": "test"}, []),
        ({"resource": T, "name": "test", "pattern": Pattern.MATCH}, ["* lit", "t pre", "te pre"]),
        ({"resource": T, "name": "t", "pattern": Pattern.MATCH}, ["t lit", "* lit", "t pre"]),
        ({"resource": T, "pattern": Pattern.MATCH}, ["t lit", "* lit", "t pre", "te pre"]),
        ({"resource": T, "name": "t", "pattern": Pattern.LITERAL}, ["t lit"]),
        ({"resource": T, "name": "*", "pattern": Pattern.LITERAL}, ["* lit"]),
        ({"resource": T, "pattern": Pattern.PREFIXED}, ["t pre", "te pre"]),
        ({"principal": "User:b"}, ["g"]),
        ({"principal": "User:*"}, []),
        ({"host": "h"}, ["te pre"]),
        ({"operation": Operation.WRITE}, ["* lit"]),
        ({"operation": Operation.ALL}, []),
        ({"permission": Permission.DENY}, ["t pre"]),
    ],
)
def test_filters(changed: dict[str, Any], matches: list[str]) -> None:
    rules = {
        "t lit": asked(),
        "* lit": asked(2, "*", 3, "User:a", "*", 4),
        "t pre": asked(2, "t", 4, "User:a", "*", 3, 2),
        "te pre": asked(2, "te", 4, "User:a", "h"),
        "g": asked(3, "g", 3, "User:b"),
    }
    kept = Kept()
    kept.create(*rules.values())
    found = at_once(acls.found(kept.image, ANY._replace(**changed)))  # 341
    assert {acls.asked_acl(rules[name]) for name in matches} == set(found)
    row = kept.delete(wanted(ANY._replace(**changed))).response.filter_results[0]
    assert {_acl(x) for x in row.matching_acls} == set(found)
    assert set(kept.image.acls) == {acls.asked_acl(r) for name, r in rules.items() if name not in matches}


def _acl(told: da.DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        Resource(told.resource_type),
        told.resource_name,
        Pattern(told.pattern_type),
        told.principal,
        told.host,
        Operation(told.operation),
        Permission(told.permission_type),
    )


def test_two_filters_tell_of_the_same_rule_and_it_is_removed_once() -> None:
    kept = Kept()
    kept.create(asked(), asked(3, "g"))
    decision = kept.delete(wanted(ANY._replace(resource=T)), wanted(ANY), wanted(ANY._replace(name="none")))
    assert [len(r.matching_acls) for r in decision.response.filter_results] == [1, 2, 0]
    assert len(decision.records) == 2
    assert (len(kept.image.acls), len(kept.image.others)) == (0, 0)


def test_a_filter_nobody_knows_finds_nothing_and_says_so() -> None:
    kept = Kept()
    kept.create(asked())
    rows = kept.delete(*(wanted(ANY._replace(**{f: 0})) for f in ("resource", "pattern", "operation", "permission")))
    assert [r.error_code for r in rows.response.filter_results] == [ErrorCode.INVALID_REQUEST] * 4
    assert len(kept.image.acls) == 1


def test_too_many_at_once_are_refused_and_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "MOST_RECORDS", 3)
    kept = Kept()
    kept.create(asked(2, "a"), asked(2, "b"), asked(2, "c"))
    with pytest.raises(ProtocolError) as refused:
        kept.create(*(asked(3, name) for name in "abcd"))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    kept.create(asked(2, "d"))
    with pytest.raises(ProtocolError) as refused:
        kept.delete(wanted(ANY))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(kept.image.acls) == 4


def test_filters_that_find_the_same_rules_share_their_rows_and_a_filter_is_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_up: list[Filter] = []
    usual = acls.found

    def found(image: Image, wanted: Filter) -> Any:
        looked_up.append(wanted)
        return usual(image, wanted)

    monkeypatch.setattr(acls, "found", found)
    kept = Kept()
    kept.create(*(asked(2, f"t{number}") for number in range(50)))
    every, topics = ANY, ANY._replace(resource=T)
    told = kept.delete(*(wanted(f) for f in (every, topics, every) * 100)).response.filter_results
    assert looked_up == [every, topics]
    assert [len(row.matching_acls) for row in told] == [50] * 300
    assert len({id(acl) for row in told for acl in row.matching_acls}) == 50
    assert len(kept.image.acls) == 0


@pytest.mark.parametrize("other", [{}, {"resource": T}], ids=["the same filter", "another one"])
def test_what_is_told_again_is_bounded_and_beyond_it_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch, other: dict[str, Any]
) -> None:
    kept = Kept()
    kept.create(asked(2, "a"), asked(2, "b" * 100))
    names = len("a" + "b" * 100) + 2 * len("User:a*")
    monkeypatch.setattr(acls, "MOST_AGAIN_CHARS", 2 * (2 * acls.ROW_CHARS + names))
    every, again = wanted(ANY), wanted(ANY._replace(**other))
    with pytest.raises(ProtocolError) as refused:
        kept.delete(every, again, again, again)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert len(kept.image.acls) == 2
    assert len(kept.delete(every, again, again).records) == 2


def test_a_short_request_cannot_ask_for_millions_of_rows() -> None:
    kept = Kept()
    kept.create(*(asked(2, f"topic-{number:06}") for number in range(2000)))
    with pytest.raises(ProtocolError) as refused:
        kept.delete(*[wanted(ANY)] * 1000)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_without_an_authorizer_there_are_no_rules() -> None:
    for steps in (
        create_acls(Image(), ca.CreateAclsRequest([asked()]), lambda: b"", {}),
        delete_acls(Image(), da.DeleteAclsRequest([wanted(ANY)]), {}),
    ):
        with pytest.raises(ProtocolError) as refused:
            at_once(steps)
        assert refused.value.code is ErrorCode.SECURITY_DISABLED


def test_rules_come_back_from_a_snapshot_and_an_older_image_keeps_its_own() -> None:
    kept = Kept()
    kept.create(asked(), asked(2, "p", 4))
    before = kept.image
    kept.delete(wanted(ANY._replace(name="t")))
    draft = Draft(Image())
    for record in records_of(before):
        draft.take(record)
    assert dict(draft.image(1, 1).acls) == dict(before.acls)
    assert (len(before.acls), len(kept.image.acls)) == (2, 1)


def test_a_rule_under_two_ids_stays_while_one_of_them_does() -> None:
    rule = asked()
    draft = Draft(Image())
    records = []
    for number in (1, 2):  # as no controller would write it
        decision = at_once(create_acls(Image(), ca.CreateAclsRequest([rule]), lambda n=number: bytes([n]) * 16, ON))
        records += decision.records
    for record in records:
        draft.take(record)
    image = draft.image(1, 1)
    assert dict(image.acls) == {acls.asked_acl(rule): b"\x02" * 16}
