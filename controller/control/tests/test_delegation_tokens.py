"""Delegation tokens at the controller (S-331, S-332, S-334), and the removal of expired tokens."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.control.controller_result import ControllerDefaults, ControllerResult
from ottla.controller.control.delegation_tokens import (
    SECRET,
    TokenRequestContext,
    decide_token_request,
    sweep_expired_tokens,
    token_hmac,
)
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import MetadataImage, image_records
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.periodic_tasks import SWEEP_EXPIRED_TOKENS
from ottla.jobs.job import run_to_end
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.messages.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord
from ottla.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

NOW = 1_700_000_000_000
HOUR, DAY = 3_600_000, 86_400_000
NEVER = 2**63 - 1
STATIC = {SECRET: "a-secret"}
BOB = CreatableRenewers("User", "bob")


def token_record(token_id: str = "t1", **other: Any) -> DelegationTokenRecord:
    fields = {"issue_timestamp": NOW, "max_timestamp": NOW + 7 * DAY, "expiration_timestamp": NOW + DAY, **other}
    return DelegationTokenRecord("User:alice", "User:admin", ["User:bob"], token_id=token_id, **fields)


def with_records(*records: Any) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    for record in records:
        draft.replay(record)
    return run_to_end(draft.image(1, 1))


def decide(
    request: Any, image: MetadataImage, principal: str = "User:alice", version: int = 3, **static: str
) -> ControllerResult:
    settings = {**STATIC, **{k.replace("_", "."): v for k, v in static.items()}}
    decision = decide_token_request(
        image, TokenRequestContext(request, principal, NOW), version, settings, lambda: bytes(range(16))
    )
    return decision if isinstance(decision, ControllerResult) else run_to_end(decision)


def created(request: CreateDelegationTokenRequest, **more: Any) -> ControllerResult:
    return decide(request, MetadataImage(), **more)


# ------------------------------------------------------------------ create


@pytest.mark.behaviour("S-331")
def test_create_delegation_token_hmac_is_derived_from_id_and_secret() -> None:
    decision = created(CreateDelegationTokenRequest())
    token_id = uuid_to_string(bytes(range(16)))
    assert (decision.response.error_code, decision.response.token_id) == (0, token_id)
    assert decision.response.hmac == token_hmac("a-secret", token_id) != token_hmac("b-secret", token_id)
    assert len(decision.response.hmac) == 64


@pytest.mark.behaviour("S-332")
def test_create_delegation_token_record_has_owner_and_no_hmac() -> None:
    decision = created(CreateDelegationTokenRequest("User", "carol", [BOB], -1), principal="User:admin")
    (record,) = decision.records
    times = NOW, NOW + 7 * DAY, NOW + DAY
    assert record == DelegationTokenRecord("User:carol", "User:admin", ["User:bob"], *times, decision.response.token_id)
    r = decision.response
    assert (r.principal_type, r.principal_name) == ("User", "carol")
    assert (r.token_requester_principal_type, r.token_requester_principal_name) == ("User", "admin")


@pytest.mark.behaviour("S-334")
def test_create_delegation_token_before_version_3_omits_requester() -> None:
    r = created(CreateDelegationTokenRequest(), version=2).response
    assert (r.principal_name, r.token_requester_principal_type, r.token_requester_principal_name) == ("alice", "", "")


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize("name", [None, ""])
def test_create_delegation_token_without_owner_uses_requester(name: str | None) -> None:
    (record,) = created(CreateDelegationTokenRequest("User", name), principal="User:alice").records
    assert (record.owner, record.requester) == ("User:alice", "User:alice")


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize(
    ("requested_ms", "static", "max_ms", "expiry_ms"),
    [
        (-1, {}, NOW + 7 * DAY, NOW + DAY),
        (0, {}, NOW + 7 * DAY, NOW + DAY),
        (2 * DAY, {}, NOW + 2 * DAY, NOW + DAY),
        (HOUR, {}, NOW + HOUR, NOW + HOUR),
        (NEVER, {}, NOW + 7 * DAY, NOW + DAY),
        (-1, {"delegation_token_max_lifetime_ms": "1000"}, NOW + 1000, NOW + 1000),
        (-1, {"delegation_token_expiry_time_ms": "1000"}, NOW + 7 * DAY, NOW + 1000),
        (-1, {"delegation_token_max_lifetime_ms": str(NEVER)}, NEVER, NOW + DAY),
    ],
)
def test_create_delegation_token_lifetime_is_limited_by_config(
    requested_ms: int, static: dict[str, str], max_ms: int, expiry_ms: int
) -> None:
    decision = created(CreateDelegationTokenRequest(max_lifetime_ms=requested_ms), **static)
    r, (record,) = decision.response, decision.records
    assert (r.issue_timestamp_ms, r.max_timestamp_ms, r.expiry_timestamp_ms) == (NOW, max_ms, expiry_ms)
    assert (record.max_timestamp, record.expiration_timestamp) == (max_ms, expiry_ms)


def test_create_delegation_token_id_does_not_begin_with_hyphen() -> None:
    ids = iter([b"\xf8" * 16, bytes(16)])
    context = TokenRequestContext(CreateDelegationTokenRequest(), "User:alice", NOW)
    decision = decide_token_request(MetadataImage(), context, 3, STATIC, lambda: next(ids))
    assert isinstance(decision, ControllerResult)
    assert decision.response.token_id == uuid_to_string(bytes(16))


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize(
    ("renewers", "static", "code"),
    [
        ([CreatableRenewers("Group", "g")], {}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ([BOB, CreatableRenewers("user", "g")], {}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ([BOB], {"delegation_token_secret_key": ""}, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
def test_create_delegation_token_invalid_writes_no_record(
    renewers: Any, static: dict[str, str], code: ErrorCode
) -> None:
    decision = created(CreateDelegationTokenRequest("User", "carol", renewers), **static)
    r = decision.response
    assert (r.error_code, decision.records) == (code, [])
    assert (r.principal_name, r.token_requester_principal_name) == ("carol", "alice")
    assert (r.issue_timestamp_ms, r.token_id, r.hmac) == (0, "", b"")


# ------------------------------------------------------------------ renew and expire

PAST = token_record(expiration_timestamp=NOW - 1)
TOO_OLD = token_record(max_timestamp=NOW - 1)
RENEW = [
    # token, principal, requested period, error, new expiration
    (token_record(), "User:alice", HOUR, 0, NOW + HOUR),
    (token_record(), "User:bob", HOUR, 0, NOW + HOUR),
    (token_record(), "User:alice", -1, 0, NOW + DAY),
    (token_record(), "User:alice", 3 * DAY, 0, NOW + DAY),
    (token_record(max_timestamp=NOW + HOUR), "User:alice", -1, 0, NOW + HOUR),
    (token_record(), "User:admin", -1, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0),
    (token_record(), "Group:alice", -1, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0),
    (PAST, "User:alice", -1, ErrorCode.DELEGATION_TOKEN_EXPIRED, 0),
    (TOO_OLD, "User:alice", -1, ErrorCode.DELEGATION_TOKEN_EXPIRED, 0),
    (PAST, "User:admin", -1, ErrorCode.DELEGATION_TOKEN_EXPIRED, 0),
    (token_record(expiration_timestamp=NOW), "User:alice", -1, 0, NOW + DAY),
]
EXPIRE = [
    (token_record(), "User:alice", HOUR, 0, NOW + HOUR),
    (token_record(), "User:bob", 0, 0, NOW),
    (token_record(), "User:alice", 3 * DAY, 0, NOW + 3 * DAY),
    (token_record(), "User:alice", NEVER, 0, NOW + 7 * DAY),
    (token_record(), "User:admin", HOUR, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0),
    (PAST, "User:admin", HOUR, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0),
    (PAST, "User:alice", HOUR, ErrorCode.DELEGATION_TOKEN_EXPIRED, 0),
    (TOO_OLD, "User:alice", 0, ErrorCode.DELEGATION_TOKEN_EXPIRED, 0),
]


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize(("token", "principal", "period_ms", "code", "end_ms"), RENEW)
def test_renew_delegation_token_returns_expiration_or_error(
    token: DelegationTokenRecord, principal: str, period_ms: int, code: int, end_ms: int
) -> None:
    request = RenewDelegationTokenRequest(token_hmac("a-secret", "t1"), period_ms)
    decision = decide(request, with_records(token, token_record("t0")), principal)
    assert (decision.response.error_code, decision.response.expiry_timestamp_ms) == (code, end_ms)
    times = {"max_timestamp": token.max_timestamp, "expiration_timestamp": end_ms}
    assert decision.records == ([] if code else [token_record(**times)])


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize(("token", "principal", "period_ms", "code", "end_ms"), EXPIRE)
def test_expire_delegation_token_returns_expiration_or_error(
    token: DelegationTokenRecord, principal: str, period_ms: int, code: int, end_ms: int
) -> None:
    request = ExpireDelegationTokenRequest(token_hmac("a-secret", "t1"), period_ms)
    decision = decide(request, with_records(token, token_record("t0")), principal)
    assert (decision.response.error_code, decision.response.expiry_timestamp_ms) == (code, end_ms)
    assert decision.records == ([] if code else [token_record(expiration_timestamp=end_ms)])


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize("token", [token_record(), PAST, TOO_OLD])
def test_expire_delegation_token_negative_period_removes_it_at_once(token: DelegationTokenRecord) -> None:
    image = with_records(token, token_record("t0"))
    decision = decide(ExpireDelegationTokenRequest(token_hmac("a-secret", "t1"), -1), image)
    assert decision.response.expiry_timestamp_ms == NOW
    assert decision.records == [RemoveDelegationTokenRecord("t1")]
    assert image_records(with_records(token, token_record("t0"), *decision.records)) is not None
    assert list(with_records(token, token_record("t0"), *decision.records).others) == [("token", "t0")]


@pytest.mark.behaviour("S-334")
@pytest.mark.parametrize("cls", [RenewDelegationTokenRequest, ExpireDelegationTokenRequest])
@pytest.mark.parametrize(
    ("shown", "static", "code"),
    [
        (token_hmac("another secret", "t1"), {}, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (b"", {}, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (token_hmac("a-secret", "t1")[:-1], {}, ErrorCode.DELEGATION_TOKEN_NOT_FOUND),
        (token_hmac("", "t1"), {"delegation_token_secret_key": ""}, ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED),
    ],
)
def test_delegation_token_request_with_unknown_hmac_returns_error(
    cls: Any, shown: bytes, static: dict[str, str], code: ErrorCode
) -> None:
    decision = decide(cls(shown, -1), with_records(token_record()), **static)
    assert (decision.response.error_code, decision.records) == (code, [])


# ------------------------------------------------------------------ expired tokens


@pytest.mark.behaviour("S-332")
def test_sweep_expired_tokens_removes_1000_per_run() -> None:
    past = [token_record(f"p{n:04d}", expiration_timestamp=NOW - 1) for n in range(1001)]
    image = with_records(*past, token_record("stays"), token_record("just now", expiration_timestamp=NOW))
    first = run_to_end(sweep_expired_tokens(image, NOW))
    assert (first.response, len(first.records)) == (True, 1000)
    second = run_to_end(sweep_expired_tokens(with_records(*past, token_record("stays"), *first.records), NOW))
    assert (second.response, len(second.records)) == (False, 1)
    left = with_records(*past, token_record("stays"), *first.records, *second.records)
    assert list(left.others) == [("token", "stays")]
    assert run_to_end(sweep_expired_tokens(left, NOW)).records == []


def test_sweep_expired_tokens_yields_every_50_tokens() -> None:
    steps = sweep_expired_tokens(with_records(*(token_record(f"t{n}") for n in range(1000))), NOW)
    assert sum(1 for _ in steps) == 20


@pytest.mark.behaviour("S-332")
def test_sweep_expired_tokens_runs_hourly_only_with_a_secret() -> None:
    assert SWEEP_EXPIRED_TOKENS.period_ms(STATIC) == HOUR
    assert SWEEP_EXPIRED_TOKENS.period_ms({**STATIC, "delegation.token.expiry.check.interval.ms": "500"}) == 500
    assert SWEEP_EXPIRED_TOKENS.period_ms({}) == 0
    machine = ControllerStateMachine(ControllerDefaults(static_config=STATIC), lambda: bytes(16))
    machine.replay(0, token_record())
    run_to_end(machine.complete_append(0, 1))
    run_to_end(machine.publish())
    early, late = (machine.decide(SWEEP_EXPIRED_TOKENS, wall_ms=NOW + DAY + x) for x in (0, 1))
    assert [run_to_end(x).records for x in (early, late)] == [[], [RemoveDelegationTokenRecord("t1")]]  # type: ignore[arg-type]


# ------------------------------------------------------------------ state machine


def test_token_request_uses_appended_records_and_snapshot_keeps_tokens() -> None:
    machine = ControllerStateMachine(ControllerDefaults(static_config=STATIC), lambda: bytes(range(16)))
    made = machine.decide(TokenRequestContext(CreateDelegationTokenRequest(), "User:alice", NOW), 3)
    assert isinstance(made, ControllerResult)
    for record in made.records:
        machine.replay(5, record)
    run_to_end(machine.complete_append(5, 1))
    renew = TokenRequestContext(RenewDelegationTokenRequest(made.response.hmac, HOUR), "User:alice", NOW)
    assert run_to_end(machine.decide(renew, 2)).response.error_code == 0  # type: ignore[arg-type]
    run_to_end(machine.publish())
    assert made.records[0] in list(image_records(machine.image))


def test_token_request_with_many_tokens_yields() -> None:
    image = with_records(*(token_record(f"t{n}") for n in range(1000)))
    request = RenewDelegationTokenRequest(bytes(64), -1)
    steps = decide_token_request(image, TokenRequestContext(request, "User:alice", NOW), 2, STATIC, lambda: bytes(16))
    assert not isinstance(steps, ControllerResult)
    assert sum(1 for _ in steps) == 10 + 1000, "one for each hundred records of the image and for each token"


@pytest.mark.parametrize("size", [0, 63, 65, 50_000_000])
def test_token_request_with_wrong_hmac_size_compares_no_token(size: int) -> None:
    """A comparison takes time proportional to the presented bytes, for every token."""
    image = with_records(*(token_record(f"t{n}") for n in range(200)))
    request = RenewDelegationTokenRequest(bytes(size), -1)
    steps = decide_token_request(image, TokenRequestContext(request, "User:alice", NOW), 2, STATIC, lambda: bytes(16))
    assert not isinstance(steps, ControllerResult)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.response.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
