"""OAUTHBEARER: messages, tokens and keys, by the facts' numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.broker.auth.bearer import MAX_MESSAGE_BYTES, BadToken, Bearer, BearerExchange
from ottla.broker.auth.exchange import NotAuthentic
from ottla.broker.auth.web_tokens import Unsecured, Wanted
from ottla.broker.tests.token_maker import EC, OTHER, RSA, published, signed, unsigned
from ottla.broker.tests.token_stage import GOOD, NOW_S, REFUSED, message, reader, wanted

# ------------------------------------------------------------------ 326, 327: messages


class Known:
    """Takes one token."""

    def read(self, token: str) -> Bearer:
        if token != "good":
            raise BadToken("another", "insufficient_scope", "[s]") if token == "scope" else BadToken("another")
        return Bearer("alice", 7)


@pytest.mark.parametrize(
    "raw",
    [
        message(),
        message(scheme="bEARER"),
        message(scheme="Bearer  "),
        message(head="n,a=alice,"),
        message(more="x=1\x01yy=a b\tc\x01"),
    ],
)
def test_326_a_token_is_shown_in_the_first_message(raw: bytes) -> None:
    exchange = BearerExchange(Known())
    assert exchange.evaluate(raw) == b""
    assert (exchange.is_done, exchange.authorization_id, exchange.expires_ms) == (True, "alice", 7)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        message(head="y,,"),
        message(head="p=x,,"),
        message(scheme="Basic"),
        message("no token"),
        message(more="1=x\x01"),
        message()[:-1],
        b"n,,\x01token=good\x01\x01",
        message("a" * MAX_MESSAGE_BYTES),
    ],
)
def test_326_anything_else_is_refused_without_a_reason(raw: bytes) -> None:
    exchange = BearerExchange(Known())
    with pytest.raises(NotAuthentic) as refused:
        exchange.evaluate(raw)
    assert refused.value.told is None
    assert not exchange.is_done


def test_326_an_authorization_id_is_the_tokens_own_name() -> None:
    with pytest.raises(NotAuthentic) as refused:
        BearerExchange(Known()).evaluate(message(head="n,a=bob,"))
    assert refused.value.told is not None
    assert "(bob)" in refused.value.told


@pytest.mark.parametrize(
    ("token", "told"),
    [("bad", REFUSED), ("scope", b'{"status":"insufficient_scope", "scope":"[s]"}')],
)
def test_327_a_bad_token_is_refused_in_two_steps(token: str, told: bytes) -> None:
    exchange = BearerExchange(Known())
    assert exchange.evaluate(message(token)) == told
    assert not exchange.is_done
    with pytest.raises(NotAuthentic) as refused:
        exchange.evaluate(b"\x01")
    assert refused.value.told == told.decode()


def test_327_another_token_may_follow_a_bad_one() -> None:
    exchange = BearerExchange(Known())
    exchange.evaluate(message("bad"))
    assert exchange.evaluate(message()) == b""
    assert exchange.is_done


# ------------------------------------------------------------------ 329: what a signed token must say


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"exp": NOW_S - 29},
        {"exp": NOW_S + 60.9},
        {"iat": NOW_S + 5000},
        {"nbf": NOW_S + 30},
        {"scope": "one two"},
        {"scope": ["one", "two"]},
        {"scope": 5},
        {"iss": "anybody"},
    ],
)
def test_329_a_token_is_good(more: dict[str, Any]) -> None:
    claims = {**GOOD, **more}
    assert reader().read(signed(claims)) == Bearer("alice", int(claims["exp"]) * 1000)


@pytest.mark.parametrize(
    "more",
    [
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"exp": NOW_S - 30},
        {"exp": "tomorrow"},
        {"exp": True},
        {"exp": 1e300},
        {"iat": "x"},
        {"iat": -1},
        {"nbf": NOW_S + 31},
        {"nbf": "x"},
        {"sub": ""},
        {"sub": " "},
        {"sub": 5},
        {"scope": ["one", "one "]},
        {"scope": ""},
        {"scope": [5]},
        {"aud": "somebody"},
    ],
)
def test_329_a_token_is_not_good(more: dict[str, Any]) -> None:
    claims = {k: v for k, v in {**GOOD, **more}.items() if v is not None}
    with pytest.raises(BadToken) as refused:
        reader().read(signed(claims, kid="a") if isinstance(claims.get("sub", ""), str) else raw_signed(claims))
    assert refused.value.told == REFUSED.decode()


def raw_signed(claims: dict[str, Any]) -> str:
    """A token whose name is no text, which the library would not make."""
    from jwt.api_jws import PyJWS

    return PyJWS().encode(json.dumps(claims).encode(), RSA, "RS256", {"kid": "a"})


@pytest.mark.parametrize(
    ("wants", "more", "is_good"),
    [
        (wanted(audiences={"kafka"}), {}, False),
        (wanted(audiences={"kafka"}), {"aud": "kafka"}, True),
        (wanted(audiences={"kafka", "x"}), {"aud": ["y", "kafka"]}, True),
        (wanted(audiences={"kafka"}), {"aud": ["y"]}, False),
        (wanted(audiences={"kafka"}), {"aud": {"kafka": 1}}, False),
        (wanted(issuer="me"), {}, False),
        (wanted(issuer="me"), {"iss": "me"}, True),
        (wanted(issuer="me"), {"iss": ["me"]}, False),
        (wanted(skew_s=0), {"exp": NOW_S}, False),
        (wanted(skew_s=0), {"exp": NOW_S + 1}, True),
        (wanted(sub="client"), {}, False),
        (wanted(sub="client"), {"client": "alice"}, True),
        (wanted(scope="sc"), {"scope": ""}, True),
    ],
)
def test_329_what_the_settings_ask_of_a_token(wants: Wanted, more: dict[str, Any], is_good: bool) -> None:
    if is_good:
        assert reader(wants=wants).read(raw_signed({**GOOD, **more})).name == "alice"
    else:
        with pytest.raises(BadToken):
            reader(wants=wants).read(raw_signed({**GOOD, **more}))


# ------------------------------------------------------------------ 329: by whom it is signed


@pytest.mark.parametrize(
    ("keys", "token"),
    [
        (published(("a", RSA)), signed(GOOD)),
        (published(("a", RSA)), signed(GOOD, kid=None)),
        (published((None, RSA)), signed(GOOD, kid="b")),
        (published(("a", OTHER), ("a", RSA)), signed(GOOD)),
        (published(("a", RSA), alg="RS256", use="sig"), signed(GOOD)),
        (published(("a", RSA)), signed(GOOD, algorithm="PS384")),
        (published(("a", EC)), signed(GOOD, EC, "ES256")),
    ],
)
def test_329_a_published_key_signed_it(keys: bytes, token: str) -> None:
    assert reader(keys=keys).read(token).name == "alice"


@pytest.mark.parametrize(
    ("keys", "token"),
    [
        (published(("a", RSA)), signed(GOOD, OTHER)),
        (published(("b", RSA)), signed(GOOD)),
        (published(("a", EC)), signed(GOOD)),
        (published(("a", RSA), use="enc"), signed(GOOD)),
        (published(("a", RSA), key_ops=["sign"]), signed(GOOD)),
        (published(("a", RSA), alg="RS512"), signed(GOOD)),
        (published(("a", RSA)), unsigned(GOOD)),
        (published(("a", RSA)), unsigned(GOOD, "NONE")),
        (published(("a", RSA)), unsigned(GOOD, "RS256", "AAAA")),
        (published(("a", RSA)), signed(GOOD)[:-8]),
        (published(("a", RSA)), signed(GOOD, "s" * 32, "HS256")),
        (
            b'{"keys": [{"kty": "oct", "k": "c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M"}]}',
            signed(GOOD, "s" * 32, "HS256"),
        ),
        (b'{"keys": [{"kty": "RSA"}]}', signed(GOOD)),
        (b'{"keys": [5]}', signed(GOOD)),
        (b"[]", signed(GOOD)),
        (b"no json", signed(GOOD)),
        (published(("a", RSA)), "one.two"),
        (published(("a", RSA)), "!.!.!"),
        (published(("a", RSA)), "W10.W10."),
        (published(("a", RSA)), "....."),
    ],
)
def test_329_nobody_trusted_signed_it(keys: bytes, token: str) -> None:
    """CVE-2026-33557: tokens were taken that nobody had signed."""
    with pytest.raises(BadToken):
        reader(keys=keys).read(token)


def test_a_secret_is_no_public_key_in_disguise() -> None:
    """The old trick: a public key's text taken as the secret of HMAC."""
    head, body, _ = unsigned(GOOD, "HS256").split(".")
    import hashlib
    import hmac
    from base64 import urlsafe_b64encode

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    mac = urlsafe_b64encode(hmac.digest(pem, f"{head}.{body}".encode(), hashlib.sha256)).decode().rstrip("=")
    with pytest.raises(BadToken):
        reader().read(f"{head}.{body}.{mac}")


def test_many_brackets_are_no_json_and_end_nothing() -> None:
    from base64 import urlsafe_b64encode

    deep = urlsafe_b64encode(b"[" * 20_000).decode()
    with pytest.raises(BadToken):
        reader().read(f"{deep}.x.y")


# ------------------------------------------------------------------ 328: without a signature


@pytest.mark.parametrize(
    ("options", "more", "is_good"),
    [
        ({}, {}, True),
        ({}, {"iat": None}, True),
        ({}, {"exp": None}, False),
        ({}, {"exp": NOW_S}, False),
        ({"unsecuredValidatorAllowableClockSkewMs": "1"}, {"exp": NOW_S}, True),
        ({}, {"iat": NOW_S + 1}, False),
        ({}, {"iat": NOW_S, "exp": NOW_S}, False),
        ({}, {"sub": ""}, False),
        ({"unsecuredValidatorPrincipalClaimName": "who"}, {"who": "bob"}, True),
        ({"unsecuredValidatorRequiredScope": "a b"}, {"scope": ["a", "b", "c"]}, True),
        ({"unsecuredValidatorRequiredScope": "a"}, {"scope": "a"}, True),
        ({"unsecuredValidatorRequiredScope": "a"}, {"scope": "a b"}, False),
        ({"unsecuredValidatorRequiredScope": "a"}, {}, False),
    ],
)
def test_328_an_unsigned_token(options: dict[str, str], more: dict[str, Any], is_good: bool) -> None:
    claims = {k: v for k, v in {**GOOD, **more}.items() if v is not None}
    tokens = Unsecured(options, lambda: NOW_S * 1000)
    if is_good:
        assert tokens.read(unsigned(claims)).name in ("alice", "bob")
    else:
        with pytest.raises(BadToken):
            tokens.read(unsigned(claims))


def test_328_a_missing_scope_is_told() -> None:
    with pytest.raises(BadToken) as refused:
        Unsecured({"unsecuredValidatorRequiredScope": "a b"}, lambda: NOW_S * 1000).read(unsigned(GOOD))
    assert refused.value.told == '{"status":"insufficient_scope", "scope":"[a, b]"}'


@pytest.mark.parametrize("token", [unsigned(GOOD, "RS256"), unsigned(GOOD, signature="AA"), "a.b", unsigned([1])])
def test_328_a_signed_one_or_none_at_all(token: str) -> None:
    with pytest.raises(BadToken):
        Unsecured({}, lambda: NOW_S * 1000).read(token)
