"""Logins by SCRAM with a delegation token."""

from __future__ import annotations

from base64 import b64encode
from functools import partial
from typing import Any

import pytest

from ottla.broker.security.authn.delegation_token_logins import DelegationTokenCredentialCache
from ottla.broker.security.authn.sasl_authenticator import SaslAuthenticator, SaslPolicy
from ottla.broker.security.authn.scram_server import ScramSaslServer
from ottla.broker.security.authn.tests.test_delegation_tokens import (
    ADMIN,
    BOB,
    CAROL,
    NOW,
    a_token,
    image_of,
)
from ottla.broker.security.authn.tests.test_sasl_authenticator import scram_login
from ottla.client.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramClient
from ottla.controller.control.delegation_tokens import token_hmac
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.metadata_records import RemoveDelegationTokenRecord


class TokenLoginFixture:
    """SASL authenticator with the delegation tokens of a metadata image."""

    def __init__(self, *records: Any) -> None:
        self.image = image_of(*records)
        self.salts = 0
        self.logins = DelegationTokenCredentialCache("a-secret", lambda: self.image, self.salt)

    def salt(self) -> bytes:
        self.salts += 1
        return self.salts.to_bytes(16, "big")

    def come(
        self, mechanism: str, token_id: str, password: bytes, *, token: bool = True
    ) -> tuple[SaslAuthenticator, Any]:
        begin = partial(ScramSaslServer, mechanism, "server", lambda user, mechanism: None, self.logins.find)
        made = SaslAuthenticator(SaslPolicy({mechanism: begin}, {}, lambda _: None, lambda: NOW - 300))  # type: ignore[arg-type,return-value]
        shown = b64encode(password).decode()
        return made, scram_login(
            made, ScramClient(mechanism, token_id, shown, "client", token=token), mechanism
        ).response


@pytest.mark.behaviour("S-335")
@pytest.mark.parametrize("mechanism", [SCRAM_SHA_256, SCRAM_SHA_512])
def test_token_login_by_both_scram_mechanisms_ends_at_token_expiry(mechanism: str) -> None:
    made, answer = TokenLoginFixture(a_token("t1", CAROL, ADMIN)).come(mechanism, "t1", token_hmac("a-secret", "t1"))
    assert (answer.error_code, made.principal_name, made.is_delegation_token) == (0, "carol", True)
    assert answer.session_lifetime_ms == 301


@pytest.mark.behaviour("S-335")
@pytest.mark.parametrize(
    ("token_id", "password", "token"),
    [
        ("t1", token_hmac("another", "t1"), True),
        ("t1", b"", True),
        ("t2", token_hmac("a-secret", "t2"), True),
        ("t1", token_hmac("a-secret", "t1"), False),
    ],
)
def test_token_login_with_wrong_hmac_or_user_flag_fails(token_id: str, password: bytes, token: bool) -> None:
    made, answer = TokenLoginFixture(a_token("t1", CAROL, ADMIN)).come(SCRAM_SHA_256, token_id, password, token=token)
    assert (answer.error_code, made.principal_name) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "")
    assert "t1" not in answer.error_message


@pytest.mark.behaviour("S-335")
def test_scram_keys_of_token_are_cached_and_dropped_with_it() -> None:
    fixture = TokenLoginFixture(a_token("t1", CAROL, ADMIN))
    first = fixture.logins.find("t1", SCRAM_SHA_256)
    assert first is not None
    assert fixture.logins.find("t1", SCRAM_SHA_256) == first
    assert fixture.salts == 1
    fixture.image = image_of(a_token("t1", CAROL, ADMIN), RemoveDelegationTokenRecord("t1"))
    assert fixture.logins.find("t1", SCRAM_SHA_256) is None
    fixture.image = image_of(a_token("t1", BOB, ADMIN))
    again = fixture.logins.find("t1", SCRAM_SHA_256)
    assert again is not None
    assert (again.owner, again.keys.salt != first.keys.salt) == ("bob", True)


@pytest.mark.behaviour("S-335")
def test_token_login_after_renewal_has_longer_session() -> None:
    fixture = TokenLoginFixture(a_token("t1", CAROL, ADMIN))
    renewed = a_token("t1", CAROL, ADMIN)
    renewed.expiration_timestamp = NOW + 700
    fixture.image = image_of(renewed)
    assert fixture.come(SCRAM_SHA_512, "t1", token_hmac("a-secret", "t1"))[1].session_lifetime_ms == 1000


def test_cached_scram_keys_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.security.authn.delegation_token_logins._MAX_CACHED_KEYS", 3)
    monkeypatch.setattr("ottla.client.scram.MIN_ITERATIONS", 1)
    fixture = TokenLoginFixture(*(a_token(f"t{n}", CAROL, ADMIN) for n in range(10)))
    for n in range(10):
        assert fixture.logins.find(f"t{n}", SCRAM_SHA_256) is not None
        assert len(fixture.logins._keys) <= 3
