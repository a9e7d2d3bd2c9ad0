"""SASL authenticator: requests that are accepted before authentication."""

from __future__ import annotations

import hashlib
import hmac
import random
from base64 import b64encode
from functools import partial
from typing import Any

import pytest

from ottla.broker.dispatch.api_registry import BROKER_APIS
from ottla.broker.security.authn.plain_server import PlainSaslServer, parse_users
from ottla.broker.security.authn.sasl_authenticator import SaslAuthenticator, SaslPolicy, SaslState
from ottla.broker.security.authn.sasl_server import SaslAuthenticationException
from ottla.broker.security.authn.scram_server import DelegationTokenCredential, ScramSaslServer
from ottla.client import scram
from ottla.client.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramClient
from ottla.wire.api_keys import ApiKey, request_class, request_spec
from ottla.wire.errors import ErrorCode, WireError
from ottla.wire.framing import encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.messages.sasl_handshake import SaslHandshakeRequest

PASSWORDS = parse_users({"user_alice": "alice-secret", "user_bob": "bob-secret", "else": "x"})
EXPIRES_MS = 5_000_000
SALTED = {x: scram.salted_password(x, "alice-secret", b"salt", 4096) for x in (SCRAM_SHA_256, SCRAM_SHA_512)}


def keys(user: str, mechanism: str) -> scram.ScramCredential | None:
    return scram.derive_credential(mechanism, SALTED[mechanism], b"salt", 4096) if user == "alice" else None


def token(token_id: str, mechanism: str) -> DelegationTokenCredential | None:
    made = scram.derive_credential(mechanism, SALTED[mechanism], b"salt", 4096)
    return DelegationTokenCredential(made, "owner", EXPIRES_MS) if token_id == "t1" else None


def create_authenticator(*, reauth_ms: int = 0, now_ms: int = 1_000_000, code: int = 0) -> SaslAuthenticator:
    mechanisms = {
        "PLAIN": partial(PlainSaslServer, PASSWORDS),
        SCRAM_SHA_256: partial(ScramSaslServer, SCRAM_SHA_256, "server", keys, token),
        SCRAM_SHA_512: partial(ScramSaslServer, SCRAM_SHA_512, "server", keys, token),
    }
    limits = dict.fromkeys(mechanisms, reauth_ms)
    return SaslAuthenticator(SaslPolicy(mechanisms, limits, lambda _: ApiVersionsResponse(code), lambda: now_ms))


def frame(request: Any, version: int) -> memoryview:
    return memoryview(encode_request(ApiKey(request.SPEC.key), version, 7, "c", request)[4:])


def versions(version: int = 3) -> memoryview:
    return frame(ApiVersionsRequest("a", "1"), version)


def handshake(mechanism: str = "PLAIN", version: int = 1) -> memoryview:
    return frame(SaslHandshakeRequest(mechanism), version)


def authenticate_frame(raw: bytes, version: int = 2) -> memoryview:
    return frame(SaslAuthenticateRequest(raw), version)


def plain(user: str = "alice", password: str = "alice-secret", authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


def authenticate(made: SaslAuthenticator, now_ms: float = 0.0, **client: str) -> Any:
    made.handle(handshake(), now_ms)
    return made.handle(authenticate_frame(plain(**client)), now_ms)


# ------------------------------------------------------------------ 312: order of requests


@pytest.mark.behaviour("S-312", "P-97")
def test_api_versions_handshake_and_token_complete_authentication():
    made = create_authenticator()
    assert made.handle(versions(), 0).response == ApiVersionsResponse()
    result = made.handle(handshake(), 0).response
    assert (result.error_code, sorted(result.mechanisms)) == (0, ["PLAIN", SCRAM_SHA_256, SCRAM_SHA_512])
    outcome = made.handle(authenticate_frame(plain()), 0)
    assert (outcome.response.error_code, outcome.failure, made.state, made.principal_name) == (
        0,
        None,
        SaslState.COMPLETE,
        "alice",
    )


@pytest.mark.behaviour("S-312")
def test_handshake_without_api_versions_is_accepted():
    made = create_authenticator()
    authenticate(made)
    assert made.state is SaslState.COMPLETE


@pytest.mark.behaviour("S-312")
def test_second_api_versions_request_raises():
    made = create_authenticator()
    made.handle(versions(), 0)
    with pytest.raises(WireError):
        made.handle(versions(), 0)


@pytest.mark.behaviour("S-312")
@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST])
def test_api_versions_with_error_may_be_repeated(code):
    made = create_authenticator(code=code)
    made.handle(versions(), 0)
    assert made.state is SaslState.INITIAL
    made.handle(versions(), 0)


@pytest.mark.behaviour("S-312", "P-97")
def test_handshake_unsupported_mechanism_returns_enabled_ones_and_fails():
    outcome = create_authenticator().handle(handshake("GSSAPI"), 0)
    assert outcome.response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert sorted(outcome.response.mechanisms) == ["PLAIN", SCRAM_SHA_256, SCRAM_SHA_512]
    assert outcome.failure
    assert outcome.is_delayed


@pytest.mark.behaviour("S-312")
def test_handshake_in_exchange_returns_illegal_sasl_state():
    made = create_authenticator()
    made.handle(handshake(), 0)
    outcome = made.handle(handshake(), 0)
    assert outcome.response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert outcome.failure
    assert outcome.is_delayed


@pytest.mark.behaviour("S-312", "P-97")
def test_handshake_v0_is_followed_by_raw_tokens():
    made = create_authenticator()
    made.handle(handshake(version=0), 0)
    outcome = made.handle(memoryview(plain()), 0)
    assert (outcome.request, outcome.response, outcome.failure, made.state) == (None, b"", None, SaslState.COMPLETE)


@pytest.mark.behaviour("S-312")
def test_raw_token_failure_has_no_response():
    made = create_authenticator()
    made.handle(handshake(version=0), 0)
    outcome = made.handle(memoryview(plain(password="x")), 0)
    assert outcome.response is None
    assert outcome.failure


STATES = {
    "first": lambda made: None,
    "versions told": lambda made: made.handle(versions(), 0),
    "tokens": lambda made: made.handle(handshake(), 0),
    "scram begun": lambda made: (
        made.handle(handshake(SCRAM_SHA_256), 0),
        made.handle(authenticate_frame(ScramClient(SCRAM_SHA_256, "alice", "x", "n").first_message()), 0),
    ),
    "other mechanism": lambda made: (authenticate(made), made.handle(handshake(SCRAM_SHA_256), 2_000.0)),
}
RECEIVED = {
    "first": {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE},
    "versions told": {ApiKey.SASL_HANDSHAKE},
    "tokens": {ApiKey.SASL_AUTHENTICATE},
    "scram begun": {ApiKey.SASL_AUTHENTICATE},
    "other mechanism": set(),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", ["low", "high", "unknown"])
def test_other_requests_before_authentication_fail_in_every_state(state, version):
    for key in ApiKey:
        if key in RECEIVED[state]:
            continue
        known = request_spec(key).versions
        number = {"low": known.low, "high": known.high, "unknown": known.high + 9}[version]
        made = create_authenticator(reauth_ms=60_000)
        STATES[state](made)
        before = made.state
        raw = encode_request(key, known.high, 7, "c", request_class(key)())[4:]
        raw = raw[:2] + number.to_bytes(2, "big", signed=True) + raw[4:] if number != known.high else raw
        try:
            outcome = made.handle(memoryview(raw), 10_000.0)
        except WireError:
            continue
        assert outcome.failure, key
        assert outcome.response is None or outcome.response.error_code == ErrorCode.ILLEGAL_SASL_STATE, key
        assert made.state is before is not SaslState.COMPLETE, key


@pytest.mark.parametrize("seed", range(20))
def test_random_frames_without_password_never_authenticate(seed):
    """Legal and illegal frames in any order, truncated, extended or with flipped bits; some name a real user."""
    rng = random.Random(seed)
    client = ScramClient(SCRAM_SHA_256, "alice", "not hers", "client")
    pieces = [bytes(versions()), bytes(handshake()), bytes(handshake(SCRAM_SHA_256)), bytes(handshake("PLAIN", 0))]
    pieces += [
        bytes(handshake(SCRAM_SHA_512, 0)),
        bytes(authenticate_frame(plain(password="alice"))),
        bytes(authenticate_frame(client.first_message())),
    ]
    pieces += [
        plain(password=""),
        client.first_message(),
        bytes(authenticate_frame(b"c=biws,r=clientserver,p=AAAA")),
        b"",
        bytes(9),
    ]
    pieces.append(encode_request(ApiKey.PRODUCE, 9, 1, "x", request_class(ApiKey.PRODUCE)())[4:])
    for _ in range(50):
        made = create_authenticator(reauth_ms=rng.choice([0, 5_000]))
        for _ in range(rng.randrange(1, 8)):
            raw = bytearray(rng.choice(pieces))
            if rng.random() < 0.4 and raw:
                raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
            if rng.random() < 0.2:
                raw = raw[: rng.randrange(len(raw) + 1)] + rng.randbytes(rng.randrange(6))
            try:
                outcome = made.handle(memoryview(bytes(raw)), 0.0)
            except WireError:
                break
            assert made.state is not SaslState.COMPLETE
            assert made.principal_name == ""
            if outcome.failure is not None:
                break


# ------------------------------------------------------------------ 314: error messages


@pytest.mark.behaviour("S-319")
@pytest.mark.parametrize(
    ("token_bytes", "text"),
    [
        (plain(password="x"), "Authentication failed: Invalid username or password"),
        (plain(user="nobody"), "Authentication failed: Invalid username or password"),
        (plain(user=""), "Authentication failed: username not specified"),
        (plain(password=""), "Authentication failed: password not specified"),
        (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0more", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            plain(authorization_id="bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_failure_message_names_broken_rule(token_bytes, text):
    made = create_authenticator()
    made.handle(handshake(), 0)
    outcome = made.handle(authenticate_frame(token_bytes), 0)
    assert (outcome.response.error_code, outcome.response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert outcome.is_delayed
    assert made.state is not SaslState.COMPLETE


@pytest.mark.behaviour("S-319")
@pytest.mark.parametrize("password", ["x", "x" * 12, "x" * 100_000])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_plain_comparison_cost_does_not_depend_on_user_or_password(user, password, monkeypatch):
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((len(a), len(b))) or compare(a, b))
    made = create_authenticator()
    made.handle(handshake(), 0)
    outcome = made.handle(authenticate_frame(plain(user=user, password=password)), 0)
    assert outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert compared == [(32, 32)]


@pytest.mark.behaviour("S-319")
def test_plain_authorization_id_equal_to_user_is_accepted():
    assert authenticate(create_authenticator(), authorization_id="alice").failure is None


def scram_login(made: SaslAuthenticator, client: ScramClient, mechanism: str = SCRAM_SHA_256) -> Any:
    made.handle(handshake(mechanism), 0)
    outcome = made.handle(authenticate_frame(client.first_message()), 0)
    if outcome.failure is None:
        outcome = made.handle(authenticate_frame(client.evaluate_challenge(outcome.response.auth_bytes)), 0)
    return outcome


@pytest.mark.behaviour("S-321")
@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_scram_login_with_correct_password_completes(mechanism):
    made, client = create_authenticator(), ScramClient(mechanism, "alice", "alice-secret", "client")
    outcome = scram_login(made, client, mechanism)
    assert (outcome.failure, made.principal_name, made.state) == (None, "alice", SaslState.COMPLETE)
    assert client.evaluate_challenge(outcome.response.auth_bytes) is None


@pytest.mark.behaviour("S-322")
@pytest.mark.parametrize(("user", "password"), [("alice", "x"), ("nobody", "alice-secret")])
def test_scram_unknown_user_and_wrong_password_return_same_message(user, password):
    outcome = scram_login(create_authenticator(), ScramClient(SCRAM_SHA_256, user, password, "client"))
    text = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert (outcome.response.error_code, outcome.response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)


@pytest.mark.behaviour("S-322")
def test_scram_final_message_without_server_nonce_fails():
    """CVE-2024-56128: otherwise a recorded proof would be accepted."""
    made, client = create_authenticator(), ScramClient(SCRAM_SHA_256, "alice", "alice-secret", "client")
    made.handle(handshake(SCRAM_SHA_256), 0)
    first = made.handle(authenticate_frame(client.first_message()), 0).response.auth_bytes.decode()
    unproved = "c=biws,r=client"  # with a matching proof, as recorded from an earlier login
    signed = f"n=alice,r=client,{first},{unproved}".encode()
    client_key = hmac.digest(SALTED[SCRAM_SHA_256], b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    outcome = made.handle(authenticate_frame(f"{unproved},p={proof}".encode()), 0)
    assert outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.behaviour("S-322")
def test_scram_credential_with_too_few_iterations_fails():
    weak = scram.derive_credential(SCRAM_SHA_256, scram.salted_password(SCRAM_SHA_256, "p", b"s", 100), b"s", 100)
    with pytest.raises(SaslAuthenticationException):
        ScramSaslServer(SCRAM_SHA_256, "n", lambda *_: weak).evaluate(b"n,,n=alice,r=abc")


def test_cve_2017_12610_authorization_id_of_other_user_fails():
    """The same check of PLAIN is above."""
    made = create_authenticator()
    made.handle(handshake(SCRAM_SHA_256), 0)
    outcome = made.handle(authenticate_frame(b"n,a=bob,n=alice,r=abc"), 0)
    assert outcome.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "different from username" in outcome.response.error_message


def test_sasl_apis_before_authentication_have_versions_of_their_specs():
    for key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        decoded = request_spec(key).versions
        assert (BROKER_APIS[key].min_version, BROKER_APIS[key].max_version) == (decoded.low, decoded.high)


@pytest.mark.behaviour("S-335")
def test_token_login_session_ends_at_token_expiry():
    made = create_authenticator(now_ms=EXPIRES_MS - 300)
    outcome = scram_login(made, ScramClient(SCRAM_SHA_256, "t1", "alice-secret", "client", token=True))
    assert (made.principal_name, made.is_delegation_token, outcome.response.session_lifetime_ms) == ("owner", True, 300)
