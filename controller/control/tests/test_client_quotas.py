"""Client quotas at the controller (S-352, S-353)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.control.client_quotas import alter_client_quotas, filter_from_request, matching_quotas
from ottla.controller.control.controller_result import ControllerResult
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from ottla.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

Names = list[tuple[str, str | None]]
RATE = "producer_byte_rate"


def entry(names: Names, *ops: tuple[str, float | None]) -> AlterClientQuotasRequestEntryData:
    entity = [AlterClientQuotasRequestEntityData(kind, name) for kind, name in names]
    return AlterClientQuotasRequestEntryData(entity, [OpData(key, v or 0.0, v is None) for key, v in ops])


class QuotaControlFixture:
    def __init__(self) -> None:
        self.image = MetadataImage()

    def alter(self, *entries: Any, dry: bool = False) -> ControllerResult:
        decision = run_to_end(alter_client_quotas(self.image, AlterClientQuotasRequest(list(entries), dry)))
        draft = ImageBuilder(self.image)
        for record in decision.records:
            draft.replay(record)
        self.image = run_to_end(draft.image(1, 1))
        return decision

    def describe(self, *components: tuple[str, int, str | None], strict: bool = False) -> dict[Any, dict[str, float]]:
        request = DescribeClientQuotasRequest([ComponentData(*x) for x in components], strict)
        return run_to_end(matching_quotas(self.image, filter_from_request(request)))


USER: Names = [("user", "u")]


@pytest.mark.parametrize(
    ("names", "ops", "code"),
    [
        (USER, [(RATE, 100)], 0),
        ([("user", None)], [(RATE, 100)], 0),
        ([("client-id", "c"), ("user", "u")], [("request_percentage", 0.5)], 0),
        ([("ip", "10.0.0.1")], [("connection_creation_rate", 5)], 0),
        ([("ip", None)], [("connection_creation_rate", 5)], 0),
        ([], [(RATE, 100)], 42),
        ([("group", "g")], [(RATE, 100)], 42),
        ([("user", "")], [(RATE, 100)], 42),
        ([("user", "a"), ("user", "b")], [(RATE, 100)], 42),
        ([("ip", "10.0.0.1"), ("user", "u")], [(RATE, 100)], 42),
        ([("ip", "not an address")], [("connection_creation_rate", 5)], 42),
        ([("ip", "10.0.0.1")], [(RATE, 100)], 42),
        (USER, [("connection_creation_rate", 5)], 42),
        (USER, [("anything", 5)], 42),
        (USER, [(RATE, 0.0)], 42),
        (USER, [(RATE, -1)], 42),
        (USER, [(RATE, float("nan"))], 42),
        (USER, [(RATE, 1.5)], 42),
        (USER, [(RATE, 2.0**64)], 42),
        ([("ip", "10.0.0.1")], [("connection_creation_rate", 2.0**32)], 42),
        (USER, [("controller_mutation_rate", 1.5)], 0),
        (USER, [(RATE, 1), (RATE, 2)], 42),
        (USER, [(RATE, 1), ("anything", 2)], 42),
        (USER, [(RATE, None)], 0),
    ],
)
def test_alter_client_quotas_invalid_entry_returns_error_for_that_entry_only(
    names: Names, ops: list[tuple[str, float | None]], code: int
) -> None:
    fixture = QuotaControlFixture()
    good: Names = [("client-id", "good")]
    rows = fixture.alter(entry(names, *ops), entry(good, (RATE, 7))).response.entries
    assert [row.error_code for row in rows] == [code, 0]
    assert [(x.entity_type, x.entity_name) for x in rows[1].entity] == good
    quotas = fixture.describe()
    assert quotas[("client-id", "good"),] == {RATE: 7}
    assert len(quotas) == 1 + (code == 0 and any(value is not None for _, value in ops))


def test_alter_client_quotas_sets_changes_and_removes_values() -> None:
    fixture = QuotaControlFixture()
    assert len(fixture.alter(entry(USER, (RATE, 1), ("request_percentage", 2))).records) == 2
    assert len(fixture.alter(entry(USER, (RATE, 1))).records) == 0
    assert len(fixture.alter(entry(USER, (RATE, 3), ("request_percentage", None))).records) == 2
    assert fixture.describe() == {(("user", "u"),): {RATE: 3}}
    assert len(fixture.alter(entry(USER, (RATE, 9)), dry=True).records) == 0
    fixture.alter(entry(USER, (RATE, None)))
    assert fixture.describe() == {}


def test_alter_client_quotas_duplicate_entity_uses_first_entry() -> None:
    fixture = QuotaControlFixture()
    rows = fixture.alter(entry(USER, (RATE, 1)), entry(USER, (RATE, 2))).response.entries
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST]
    assert fixture.describe() == {(("user", "u"),): {RATE: 1}}


def named(names: range | list[str], ops: int) -> list[Any]:
    keys = [(RATE, 1), ("consumer_byte_rate", 1)][:ops]
    return [entry([("user", str(name))], *keys) for name in names]


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("most", "more", "code", "why"),
    [
        (named(range(5_000), 2), named(range(5_000, 5_001), 1), ErrorCode.POLICY_VIOLATION, "excessively large"),
        (
            named([f"{n:032767}" for n in range(256)], 1),
            named(["a" * 257], 1),
            ErrorCode.RECORD_LIST_TOO_LARGE,
            "maximum allowed batch size",
        ),
        (
            named([f"{n:03}" + "\u20ac" * 10_921 for n in range(256)], 1),
            named(["\u20ac" * 171], 1),
            ErrorCode.RECORD_LIST_TOO_LARGE,
            "maximum allowed batch size",
        ),
    ],
    ids=["records", "bytes", "bytes of characters"],
)
def test_alter_client_quotas_above_batch_limit_fails_all_entries(
    most: list[Any], more: list[Any], code: ErrorCode, why: str, *, dry: bool
) -> None:
    fixture = QuotaControlFixture()
    decision = fixture.alter(*most, *more, dry=dry)
    assert {(row.error_code, why in row.error_message) for row in decision.response.entries} == {(code, True)}
    assert [x.entity[0].entity_name for x in decision.response.entries] == [
        x.entity[0].entity_name for x in (*most, *more)
    ]
    assert decision.records == []
    fits = fixture.alter(*most, dry=dry)
    assert {row.error_code for row in fits.response.entries} == {0}
    assert len(fits.records) == (0 if dry else sum(len(x.ops) for x in most))


@pytest.mark.parametrize(
    "large",
    [
        entry([(f"kind {n}", "x") for n in range(100_000)], (RATE, 1)),
        entry(USER, *((f"key {n}", None) for n in range(100_000))),
    ],
    ids=["entity", "keys"],
)
def test_alter_client_quotas_oversized_entity_returns_invalid_request(large: Any) -> None:
    """An oversized entity takes one step of the event loop, and has a short response row."""
    rows = QuotaControlFixture().alter(large, entry([("client-id", "good")], (RATE, 7))).response.entries
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST, 0]
    assert len(rows[0].entity) <= 20


@pytest.mark.parametrize(
    ("components", "strict", "names"),
    [
        ([], False, ["u", "any u", "u c", "any", "ip"]),
        ([], True, []),
        ([("user", 0, "u")], False, ["u", "u c"]),
        ([("user", 0, "u")], True, ["u"]),
        ([("user", 1, None)], False, ["any u"]),
        ([("user", 2, None)], False, ["u", "any u", "u c"]),
        ([("user", 2, None)], True, ["u", "any u"]),
        ([("client-id", 1, None)], True, ["any"]),
        ([("user", 2, None), ("client-id", 0, "c")], True, ["u c"]),
        ([("ip", 2, None)], False, ["ip"]),
        ([("user", 0, "none")], False, []),
    ],
)
def test_describe_client_quotas_applies_filter(
    components: list[tuple[str, int, str | None]], strict: bool, names: list[str]
) -> None:
    entities: dict[str, Names] = {
        "u": [("user", "u")],
        "any u": [("user", None)],
        "u c": [("client-id", "c"), ("user", "u")],
        "any": [("client-id", None)],
        "ip": [("ip", "10.0.0.1")],
    }
    fixture = QuotaControlFixture()
    for entity in entities.values():
        fixture.alter(entry(entity, ("connection_creation_rate" if entity[0][0] == "ip" else RATE, 1)))
    assert set(fixture.describe(*components, strict=strict)) == {tuple(entities[name]) for name in names}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_describe_client_quotas_invalid_filter_raises_error(
    components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    with pytest.raises(ProtocolError) as refused:
        QuotaControlFixture().describe(*components)
    assert refused.value.code is code
