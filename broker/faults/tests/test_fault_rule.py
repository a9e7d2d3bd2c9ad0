"""Which calls a fault applies to."""

from __future__ import annotations

import os
from typing import Any

import pytest

from ottla.broker.faults.fault_rule import (
    MAX_RULES,
    FaultCall,
    FaultKind,
    FaultLimits,
    FaultRules,
    FaultSpec,
    InvalidFault,
    parse_fault,
    parse_limits,
)
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode

PRODUCE = FaultSpec(FaultKind.DROP, ApiKey.PRODUCE)
CALL = FaultCall(ApiKey.PRODUCE, "app", lambda: ["orders"])


def applied(limits: FaultLimits, calls: int) -> list[int]:
    """Return the numbers of the calls that a fault with these limits applies to."""
    rules = FaultRules()
    rules.add(PRODUCE, limits)
    return [number for number in range(1, calls + 1) if rules.choose(CALL)]


def test_fault_without_limits_applies_to_all_calls() -> None:
    assert applied(FaultLimits(), 4) == [1, 2, 3, 4]


def test_times_applies_to_the_first_calls() -> None:
    assert applied(FaultLimits(times=2), 5) == [1, 2]


def test_on_call_applies_to_one_call() -> None:
    assert applied(FaultLimits(on_call=3), 5) == [3]


def test_probability_depends_on_the_seed_alone() -> None:
    first = applied(FaultLimits(probability=0.3, seed=7), 1000)
    assert first == applied(FaultLimits(probability=0.3, seed=7), 1000)
    assert first != applied(FaultLimits(probability=0.3, seed=8), 1000)
    assert 250 < len(first) < 350


@pytest.mark.parametrize(("probability", "expected"), [(0.0, []), (1.0, [1, 2, 3])])
def test_probability_of_0_and_1_are_certain(probability: float, expected: list[int]) -> None:
    assert applied(FaultLimits(probability=probability), 3) == expected


def test_times_counts_calls_that_probability_chose() -> None:
    chosen = applied(FaultLimits(probability=0.3, seed=7), 1000)
    assert applied(FaultLimits(times=5, probability=0.3, seed=7), 1000) == chosen[:5]


def test_new_limits_keep_the_counts() -> None:
    rules = FaultRules()
    rule = rules.add(PRODUCE)
    assert [bool(rules.choose(CALL)) for _ in range(2)] == [True, True]
    rule.set_limits(FaultLimits(times=3))
    assert [bool(rules.choose(CALL)) for _ in range(2)] == [True, False]
    assert (rule.calls, rule.applied) == (4, 3)


@pytest.mark.parametrize(
    ("spec", "call", "expected"),
    [
        (PRODUCE, CALL, True),
        (PRODUCE, CALL._replace(api=ApiKey.FETCH), False),
        (PRODUCE._replace(topic="orders"), CALL, True),
        (PRODUCE._replace(topic="order"), CALL, False),
        (PRODUCE._replace(client_id="app"), CALL, True),
        (PRODUCE._replace(client_id=""), CALL, False),
        (PRODUCE, CALL._replace(is_follower=lambda: True), False),
        (PRODUCE._replace(client_id="app"), CALL._replace(is_follower=lambda: True), True),
        (FaultSpec(FaultKind.DISK_FULL), FaultCall(path="/a/t-0/0.log"), True),
        (FaultSpec(FaultKind.DISK_FULL), CALL, False),
        (FaultSpec(FaultKind.DISK_FULL, directory="/a/"), FaultCall(path="/a/t-0/0.log"), True),
        (FaultSpec(FaultKind.DISK_FULL, directory="/a/t"), FaultCall(path="/a/t-0/0.log"), False),
        (FaultSpec(FaultKind.DISK_FULL, directory="/"), FaultCall(path="/a/t-0/0.log"), True),
        (FaultSpec(FaultKind.DISK_FULL, directory="a"), FaultCall(path="./a/t-0/0.log"), True),
        (FaultSpec(FaultKind.DISK_FULL, directory=os.path.abspath("a/t-0")), FaultCall(path="a/t-0/0.log"), True),
        (FaultSpec(FaultKind.DISK_FULL, directory="a/t"), FaultCall(path="./a/t-0/0.log"), False),
        (PRODUCE, FaultCall(path="/a/t-0/0.log"), False),
    ],
)
def test_rule_matches_api_topic_client_and_directory(spec: FaultSpec, call: FaultCall, *, expected: bool) -> None:
    rules = FaultRules()
    rule = rules.add(spec)
    assert bool(rules.choose(call)) == expected
    assert rule.calls == expected


def test_topics_are_decoded_only_for_rules_of_the_api() -> None:
    def fail() -> list[str]:
        raise AssertionError("decoded")

    rules = FaultRules()
    rules.add(PRODUCE._replace(topic="orders"))
    rules.add(FaultSpec(FaultKind.DROP, ApiKey.FETCH))
    assert not rules.choose(FaultCall(ApiKey.METADATA, "app", fail, fail))  # type: ignore[arg-type]


def test_removed_faults_do_not_apply() -> None:
    rules = FaultRules()
    first, second = rules.add(PRODUCE), rules.add(PRODUCE)
    assert rules.remove(first.id) is first
    assert rules.list() == [second]
    with pytest.raises(InvalidFault, match="fault 1 does not exist"):
        rules.remove(first.id)
    rules.clear()
    assert not rules.choose(CALL)


def test_fault_is_added_and_removed_while_a_thread_chooses() -> None:
    rules = FaultRules()

    def change() -> list[str]:
        rules.remove(rules.add(PRODUCE).id)
        rules.add(PRODUCE)
        return ["orders"]

    first = rules.add(PRODUCE._replace(topic="orders"))
    assert rules.choose(CALL._replace(topics=change)) == [first]


def test_number_of_faults_is_limited() -> None:
    rules = FaultRules()
    for _ in range(MAX_RULES):
        rules.add(PRODUCE)
    with pytest.raises(InvalidFault, match="more than 1000 faults"):
        rules.add(PRODUCE)


@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "ADD_PARTITIONS_TO_TXN", "addpartitionstotxn"])
def test_api_is_named_as_kafka_or_its_constant_does(api: str) -> None:
    assert parse_fault({"fault": "drop", "api": api}).api is ApiKey.ADD_PARTITIONS_TO_TXN


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "not_leader_or_follower", "6", 6])
def test_error_is_named_by_name_or_number(code: str | int) -> None:
    assert parse_fault({"fault": "error", "api": "Fetch", "code": code}).code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "unknown fault: ; one of error, delay"),
        ({"fault": "explode"}, "unknown fault: explode"),
        ({"fault": "drop"}, "drop needs api"),
        ({"fault": "error", "api": "Fetch"}, "error needs code"),
        ({"fault": "error", "api": "Fetch", "code": "NONE"}, "unknown error code: NONE"),
        ({"fault": "error", "api": "Fetch", "code": 12345}, "unknown error code: 12345"),
        ({"fault": "delay", "api": "Fetch"}, "delay needs ms"),
        ({"fault": "delay", "api": "Fetch", "ms": -1}, "ms: number from 0 to 2147483647 expected: -1"),
        ({"fault": "throttle", "api": "Fetch", "ms": 2**31}, "ms: number from 0 to 2147483647 expected: 2147483648"),
        ({"fault": "delay", "api": "Fetch", "ms": True}, "ms: int expected: True"),
        ({"fault": "drop", "api": "Fech"}, "unknown API: Fech"),
        ({"fault": "drop", "api": 1}, "api: str expected: 1"),
        ({"fault": "drop", "api": "Fetch", "code": "NONE"}, "drop has no code"),
        ({"fault": "disk_full", "api": "Fetch"}, "disk_full has no api"),
        ({"fault": "drop", "api": "Fetch", "color": "red"}, "unknown field: color"),
    ],
)
def test_invalid_fault_is_named(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidFault) as caught:
        parse_fault(raw)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({"times": 0}, "times: at least 1 expected: 0"),
        ({"on_call": 0}, "on_call: at least 1 expected: 0"),
        ({"probability": 1.5}, "probability: number from 0 to 1 expected: 1.5"),
        ({"probability": "often"}, "probability: float expected: 'often'"),
        ({"probability": float("nan")}, "probability: number from 0 to 1 expected: nan"),
        ({"times": 1.5}, "times: int expected: 1.5"),
    ],
)
def test_invalid_limit_is_named(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidFault) as caught:
        parse_limits(raw)
    assert str(caught.value) == problem


def test_description_of_a_rule_adds_the_same_rule() -> None:
    raw = {"fault": "error", "api": "Produce", "code": "NOT_LEADER_OR_FOLLOWER", "topic": "t", "client_id": "c"}
    raw |= {"times": 3, "on_call": 2, "probability": 0.5, "seed": 9}
    rule = FaultRules().add(parse_fault(raw), parse_limits(raw))
    assert rule.describe() == {"id": 1, **raw, "calls": 0, "applied": 0}
