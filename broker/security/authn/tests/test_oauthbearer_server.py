"""OAUTHBEARER: messages, tokens and keys."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.broker.config.limits import MAX_OAUTHBEARER_MESSAGE_BYTES
from ottla.broker.security.authn.jwt_validator import JwtRequirements, UnsecuredJwtValidator
from ottla.broker.security.authn.oauthbearer_server import InvalidToken, OAuthBearerSaslServer, OAuthBearerToken
from ottla.broker.security.authn.sasl_server import SaslAuthenticationException
from ottla.broker.security.authn.tests.oauthbearer_fixture import (
    INVALID_TOKEN_RESPONSE,
    NOW_S,
    VALID_CLAIMS,
    create_requirements,
    create_validator,
    initial_message,
)
from ottla.broker.security.authn.tests.token_issuer import EC, OTHER, RSA, build_jwks, build_unsigned_token, sign_token

# ------------------------------------------------------------------ 326, 327: messages


class SingleTokenValidator:
    """Accepts one token."""

    def validate(self, token: str) -> OAuthBearerToken:
        if token != "good":
            raise InvalidToken("another", "insufficient_scope", "[s]") if token == "scope" else InvalidToken("another")
        return OAuthBearerToken("alice", 7)


@pytest.mark.behaviour("S-326")
@pytest.mark.parametrize(
    "raw",
    [
        initial_message(),
        initial_message(scheme="bEARER"),
        initial_message(scheme="Bearer  "),
        initial_message(head="n,a=alice,"),
        initial_message(more="x=1\x01yy=a b\tc\x01"),
    ],
)
def test_initial_response_with_valid_token_completes(raw: bytes) -> None:
    exchange = OAuthBearerSaslServer(SingleTokenValidator())
    assert exchange.evaluate(raw) == b""
    assert (exchange.is_complete, exchange.authorization_id, exchange.expires_ms) == (True, "alice", 7)


@pytest.mark.behaviour("S-326")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        initial_message(head="y,,"),
        initial_message(head="p=x,,"),
        initial_message(scheme="Basic"),
        initial_message("no token"),
        initial_message(more="1=x\x01"),
        initial_message()[:-1],
        b"n,,\x01token=good\x01\x01",
        initial_message("a" * MAX_OAUTHBEARER_MESSAGE_BYTES),
    ],
)
def test_invalid_initial_response_fails_without_client_message(raw: bytes) -> None:
    exchange = OAuthBearerSaslServer(SingleTokenValidator())
    with pytest.raises(SaslAuthenticationException) as refused:
        exchange.evaluate(raw)
    assert refused.value.client_message is None
    assert not exchange.is_complete


@pytest.mark.behaviour("S-326")
def test_authorization_id_other_than_token_principal_fails() -> None:
    with pytest.raises(SaslAuthenticationException) as refused:
        OAuthBearerSaslServer(SingleTokenValidator()).evaluate(initial_message(head="n,a=bob,"))
    assert refused.value.client_message is not None
    assert "(bob)" in refused.value.client_message


@pytest.mark.behaviour("S-327")
@pytest.mark.parametrize(
    ("token", "expected"),
    [("bad", INVALID_TOKEN_RESPONSE), ("scope", b'{"status":"insufficient_scope", "scope":"[s]"}')],
)
def test_invalid_token_is_refused_in_two_steps(token: str, expected: bytes) -> None:
    exchange = OAuthBearerSaslServer(SingleTokenValidator())
    assert exchange.evaluate(initial_message(token)) == expected
    assert not exchange.is_complete
    with pytest.raises(SaslAuthenticationException) as refused:
        exchange.evaluate(b"\x01")
    assert refused.value.client_message == expected.decode()


@pytest.mark.behaviour("S-327")
def test_valid_token_after_invalid_one_completes() -> None:
    exchange = OAuthBearerSaslServer(SingleTokenValidator())
    exchange.evaluate(initial_message("bad"))
    assert exchange.evaluate(initial_message()) == b""
    assert exchange.is_complete


# ------------------------------------------------------------------ 329: claims of a signed token


@pytest.mark.behaviour("S-329")
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
def test_signed_token_with_valid_claims_is_accepted(more: dict[str, Any]) -> None:
    claims = {**VALID_CLAIMS, **more}
    assert create_validator().validate(sign_token(claims)) == OAuthBearerToken("alice", int(claims["exp"]) * 1000)


@pytest.mark.behaviour("S-329")
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
def test_signed_token_with_invalid_claims_is_refused(more: dict[str, Any]) -> None:
    claims = {k: v for k, v in {**VALID_CLAIMS, **more}.items() if v is not None}
    with pytest.raises(InvalidToken) as refused:
        create_validator().validate(
            sign_token(claims, kid="a") if isinstance(claims.get("sub", ""), str) else raw_signed(claims)
        )
    assert refused.value.client_message == INVALID_TOKEN_RESPONSE.decode()


def raw_signed(claims: dict[str, Any]) -> str:
    """Sign a token with a name that is no string, which the library would not create."""
    from jwt.api_jws import PyJWS

    return PyJWS().encode(json.dumps(claims).encode(), RSA, "RS256", {"kid": "a"})


@pytest.mark.behaviour("S-329")
@pytest.mark.parametrize(
    ("wants", "more", "is_good"),
    [
        (create_requirements(audiences={"kafka"}), {}, False),
        (create_requirements(audiences={"kafka"}), {"aud": "kafka"}, True),
        (create_requirements(audiences={"kafka", "x"}), {"aud": ["y", "kafka"]}, True),
        (create_requirements(audiences={"kafka"}), {"aud": ["y"]}, False),
        (create_requirements(audiences={"kafka"}), {"aud": {"kafka": 1}}, False),
        (create_requirements(issuer="me"), {}, False),
        (create_requirements(issuer="me"), {"iss": "me"}, True),
        (create_requirements(issuer="me"), {"iss": ["me"]}, False),
        (create_requirements(skew_s=0), {"exp": NOW_S}, False),
        (create_requirements(skew_s=0), {"exp": NOW_S + 1}, True),
        (create_requirements(sub="client"), {}, False),
        (create_requirements(sub="client"), {"client": "alice"}, True),
        (create_requirements(scope="sc"), {"scope": ""}, True),
    ],
)
def test_token_requirements_from_settings_are_checked(
    wants: JwtRequirements, more: dict[str, Any], is_good: bool
) -> None:
    if is_good:
        assert create_validator(wants=wants).validate(raw_signed({**VALID_CLAIMS, **more})).principal_name == "alice"
    else:
        with pytest.raises(InvalidToken):
            create_validator(wants=wants).validate(raw_signed({**VALID_CLAIMS, **more}))


# ------------------------------------------------------------------ 329: signing keys


@pytest.mark.behaviour("S-329")
@pytest.mark.parametrize(
    ("keys", "token"),
    [
        (build_jwks(("a", RSA)), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA)), sign_token(VALID_CLAIMS, kid=None)),
        (build_jwks((None, RSA)), sign_token(VALID_CLAIMS, kid="b")),
        (build_jwks(("a", OTHER), ("a", RSA)), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA), alg="RS256", use="sig"), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA)), sign_token(VALID_CLAIMS, algorithm="PS384")),
        (build_jwks(("a", EC)), sign_token(VALID_CLAIMS, EC, "ES256")),
    ],
)
def test_token_signed_by_published_key_is_accepted(keys: bytes, token: str) -> None:
    assert create_validator(keys=keys).validate(token).principal_name == "alice"


@pytest.mark.behaviour("S-329")
@pytest.mark.parametrize(
    ("keys", "token"),
    [
        (build_jwks(("a", RSA)), sign_token(VALID_CLAIMS, OTHER)),
        (build_jwks(("b", RSA)), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", EC)), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA), use="enc"), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA), key_ops=["sign"]), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA), alg="RS512"), sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA)), build_unsigned_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA)), build_unsigned_token(VALID_CLAIMS, "NONE")),
        (build_jwks(("a", RSA)), build_unsigned_token(VALID_CLAIMS, "RS256", "AAAA")),
        (build_jwks(("a", RSA)), sign_token(VALID_CLAIMS)[:-8]),
        (build_jwks(("a", RSA)), sign_token(VALID_CLAIMS, "s" * 32, "HS256")),
        (
            b'{"keys": [{"kty": "oct", "k": "c3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3M"}]}',
            sign_token(VALID_CLAIMS, "s" * 32, "HS256"),
        ),
        (b'{"keys": [{"kty": "RSA"}]}', sign_token(VALID_CLAIMS)),
        (b'{"keys": [5]}', sign_token(VALID_CLAIMS)),
        (b"[]", sign_token(VALID_CLAIMS)),
        (b"no json", sign_token(VALID_CLAIMS)),
        (build_jwks(("a", RSA)), "one.two"),
        (build_jwks(("a", RSA)), "!.!.!"),
        (build_jwks(("a", RSA)), "W10.W10."),
        (build_jwks(("a", RSA)), "....."),
    ],
)
def test_token_signed_by_unknown_key_is_refused(keys: bytes, token: str) -> None:
    """CVE-2026-33557: unsigned tokens were accepted."""
    with pytest.raises(InvalidToken):
        create_validator(keys=keys).validate(token)


def test_hmac_token_keyed_with_public_key_is_refused() -> None:
    """Known attack: the text of a public key used as the secret of HMAC."""
    head, body, _ = build_unsigned_token(VALID_CLAIMS, "HS256").split(".")
    import hashlib
    import hmac
    from base64 import urlsafe_b64encode

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    mac = urlsafe_b64encode(hmac.digest(pem, f"{head}.{body}".encode(), hashlib.sha256)).decode().rstrip("=")
    with pytest.raises(InvalidToken):
        create_validator().validate(f"{head}.{body}.{mac}")


def test_deeply_nested_token_header_is_refused() -> None:
    from base64 import urlsafe_b64encode

    deep = urlsafe_b64encode(b"[" * 20_000).decode()
    with pytest.raises(InvalidToken):
        create_validator().validate(f"{deep}.x.y")


# ------------------------------------------------------------------ 328: without a signature


@pytest.mark.behaviour("S-328")
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
def test_unsecured_token_claims_are_validated(options: dict[str, str], more: dict[str, Any], is_good: bool) -> None:
    claims = {k: v for k, v in {**VALID_CLAIMS, **more}.items() if v is not None}
    tokens = UnsecuredJwtValidator(options, lambda: NOW_S * 1000)
    if is_good:
        assert tokens.validate(build_unsigned_token(claims)).principal_name in ("alice", "bob")
    else:
        with pytest.raises(InvalidToken):
            tokens.validate(build_unsigned_token(claims))


@pytest.mark.behaviour("S-328")
def test_unsecured_token_without_required_scope_returns_insufficient_scope() -> None:
    with pytest.raises(InvalidToken) as refused:
        UnsecuredJwtValidator({"unsecuredValidatorRequiredScope": "a b"}, lambda: NOW_S * 1000).validate(
            build_unsigned_token(VALID_CLAIMS)
        )
    assert refused.value.client_message == '{"status":"insufficient_scope", "scope":"[a, b]"}'


@pytest.mark.behaviour("S-328")
@pytest.mark.parametrize(
    "token",
    [
        build_unsigned_token(VALID_CLAIMS, "RS256"),
        build_unsigned_token(VALID_CLAIMS, signature="AA"),
        "a.b",
        build_unsigned_token([1]),
    ],
)
def test_signed_or_malformed_token_is_refused_as_unsecured(token: str) -> None:
    with pytest.raises(InvalidToken):
        UnsecuredJwtValidator({}, lambda: NOW_S * 1000).validate(token)
