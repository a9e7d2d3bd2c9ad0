"""Session lifetimes and reauthentication (S-316 to S-318)."""

from __future__ import annotations

import pytest

from ottla.broker.security.authn.tests.test_sasl_authenticator import (
    EXPIRES_MS,
    authenticate,
    authenticate_frame,
    create_authenticator,
    handshake,
    scram_login,
)
from ottla.client.scram import SCRAM_SHA_256, ScramClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode


@pytest.mark.behaviour("S-316")
def test_session_without_limit_does_not_expire():
    made = create_authenticator()
    assert authenticate(made).response.session_lifetime_ms == 0
    assert made.check_session(ApiKey.PRODUCE, 1e12)


@pytest.mark.behaviour("S-316")
def test_session_lifetime_is_minimum_of_limit_and_token():
    made = create_authenticator(reauth_ms=200, now_ms=EXPIRES_MS - 300)
    outcome = scram_login(made, ScramClient(SCRAM_SHA_256, "t1", "alice-secret", "client", token=True))
    assert outcome.response.session_lifetime_ms == 200


@pytest.mark.behaviour("S-316")
def test_expired_credentials_give_zero_session_lifetime():
    made = create_authenticator(now_ms=EXPIRES_MS + 1)
    outcome = scram_login(made, ScramClient(SCRAM_SHA_256, "t1", "alice-secret", "client", token=True))
    assert outcome.response.session_lifetime_ms == 0
    assert made.check_session(ApiKey.PRODUCE, 0.1) is None


@pytest.mark.behaviour("S-317", "P-98")
@pytest.mark.parametrize(
    ("key", "at_ms", "lets"),
    [
        (ApiKey.PRODUCE, 4_999.0, True),
        (ApiKey.PRODUCE, 5_001.0, None),
        (ApiKey.SASL_HANDSHAKE, 4_000.0, False),
        (ApiKey.SASL_HANDSHAKE, 5_001.0, False),
    ],
)
def test_expired_session_accepts_only_reauthentication(key, at_ms, lets):
    made = create_authenticator(reauth_ms=5_000)
    authenticate(made)
    assert made.check_session(key, at_ms) is lets


@pytest.mark.behaviour("S-317")
def test_reauthentication_is_limited_to_once_a_second():
    made = create_authenticator(reauth_ms=5_000)
    authenticate(made)
    assert authenticate(made, 2_000.0).failure is None
    assert made.check_session(ApiKey.SASL_HANDSHAKE, 2_999.0)
    assert made.check_session(ApiKey.SASL_HANDSHAKE, 3_000.0) is False


@pytest.mark.behaviour("S-317")
def test_handshake_without_session_limit_is_passed_on():
    made = create_authenticator()
    authenticate(made)
    assert made.check_session(ApiKey.SASL_HANDSHAKE, 9e9)


@pytest.mark.behaviour("S-316")
def test_reauthentication_moves_session_deadline():
    made = create_authenticator(reauth_ms=5_000)
    authenticate(made)
    authenticate(made, 3_000.0)
    assert made.deadline_ms == 8_000.0


@pytest.mark.behaviour("S-318")
def test_reauthentication_with_other_mechanism_closes_at_next_token():
    made = create_authenticator(reauth_ms=5_000)
    authenticate(made)
    outcome = made.handle(handshake(SCRAM_SHA_256), 2_000.0)
    assert (outcome.response.error_code, outcome.failure) == (0, None)
    outcome = made.handle(authenticate_frame(b"n,,n=alice,r=abc"), 2_000.0)
    assert outcome.failure
    assert outcome.response is None


@pytest.mark.behaviour("S-318", "P-98")
def test_reauthentication_with_other_principal_fails():
    made = create_authenticator(reauth_ms=5_000)
    authenticate(made)
    outcome = authenticate(made, 2_000.0, user="bob", password="bob-secret")
    text = "Cannot change principals during re-authentication from User.alice: User.bob"
    assert (outcome.response.error_code, outcome.response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert made.principal_name == "alice"


@pytest.mark.behaviour("S-318")
def test_reauthentication_failure_message_names_reauthentication():
    made = create_authenticator(reauth_ms=5_000)
    made.handle(handshake(SCRAM_SHA_256), 0)
    client = ScramClient(SCRAM_SHA_256, "alice", "alice-secret", "client")
    made.handle(
        authenticate_frame(
            client.evaluate_challenge(made.handle(authenticate_frame(client.first_message()), 0).response.auth_bytes)
        ),
        0,
    )
    made.handle(handshake(SCRAM_SHA_256), 2_000.0)
    outcome = made.handle(authenticate_frame(b"nonsense"), 2_000.0)
    assert "during re-authentication" in outcome.response.error_message
