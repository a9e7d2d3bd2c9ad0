"""SCRAM: keys and messages of the RFC examples, and malformed messages."""

from __future__ import annotations

from base64 import b64decode

import pytest

from ottla.client import scram
from ottla.client.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramClient, ScramError

NONCE = "rOprNGfwEbeRWgbNEkqO"
BOTH = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_FIRST = f"r={BOTH},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
CLIENT_FINAL = f"c=biws,r={BOTH},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""RFC 7677, section 3: user, pencil, SCRAM-SHA-256."""


def test_scram_client_messages_equal_rfc_7677():
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    assert client.first_message() == f"n,,n=user,r={NONCE}".encode()
    assert client.evaluate_challenge(SERVER_FIRST) == CLIENT_FINAL
    assert client.evaluate_challenge(SERVER_FINAL) is None
    assert client.is_done


def test_verify_proof_accepts_rfc_7677_example():
    keys = scram.derive_credential(
        SCRAM_SHA_256, scram.salted_password(SCRAM_SHA_256, "pencil", SALT, 4096), SALT, 4096
    )
    first, final = scram.parse_client_first(f"n,,n=user,r={NONCE}".encode()), scram.parse_client_final(CLIENT_FINAL)
    signed = f"{first.bare},{scram.server_first_message(BOTH, keys)},{final.without_proof}"
    assert scram.verify_proof(SCRAM_SHA_256, keys, signed, final.proof)
    assert scram.server_final_message(scram.server_signature(SCRAM_SHA_256, keys, signed)) == SERVER_FINAL


@pytest.mark.parametrize("place", range(3))
def test_verify_proof_with_changed_bit_returns_false(place):
    keys = scram.derive_credential(
        SCRAM_SHA_256, scram.salted_password(SCRAM_SHA_256, "pencil", SALT, 4096), SALT, 4096
    )
    first, final = scram.parse_client_first(f"n,,n=user,r={NONCE}".encode()), scram.parse_client_final(CLIENT_FINAL)
    signed = f"{first.bare},{scram.server_first_message(BOTH, keys)},{final.without_proof}"
    other = bytearray(final.proof)
    other[place * 15] ^= 1
    assert not scram.verify_proof(SCRAM_SHA_256, keys, signed, bytes(other))
    assert not scram.verify_proof(SCRAM_SHA_256, keys, signed, final.proof[:-1])


def test_scram_sha_512_exchange_succeeds():
    salted = scram.salted_password(SCRAM_SHA_512, "pencil", SALT, 4096)
    keys = scram.derive_credential(SCRAM_SHA_512, salted, SALT, 4096)
    client = ScramClient(SCRAM_SHA_512, "user", "pencil", "c0")
    first = scram.parse_client_first(client.first_message())
    challenge = scram.server_first_message("c0s0", keys)
    final = scram.parse_client_final(client.evaluate_challenge(challenge.encode()) or b"")
    signed = f"{first.bare},{challenge},{final.without_proof}"
    assert scram.verify_proof(SCRAM_SHA_512, keys, signed, final.proof)
    assert (
        client.evaluate_challenge(scram.server_final_message(scram.server_signature(SCRAM_SHA_512, keys, signed)))
        is None
    )


def test_scram_user_name_with_comma_and_equals_sign_is_escaped():
    first = scram.parse_client_first(ScramClient(SCRAM_SHA_256, "a,b=c", "x", "n0").first_message())
    assert (first.name, first.nonce, first.authorization_id) == ("a,b=c", "n0", "")


@pytest.mark.parametrize(
    "raw",
    [
        b"y,,n=user,r=abc",  # S-321: requires channel binding
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=3Eer,r=abc",  # an unknown escape
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        "n,,n=\u00fcser,r=abc".encode(),
        b"",
        b"\xff" * 20,
    ],
)
def test_parse_client_first_malformed_raises_scram_error(raw):
    with pytest.raises(ScramError):
        scram.parse_client_first(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"c=biws,r=abc", b"c=biws,r=abc,p=***", b"c=b,r=abc,p=AAAA", b"p=AAAA,c=biws,r=x"]
)
def test_parse_client_final_malformed_raises_scram_error(raw):
    with pytest.raises(ScramError):
        scram.parse_client_final(raw)


def test_parse_client_first_reads_tokenauth_extension():
    first = scram.parse_client_first(ScramClient(SCRAM_SHA_256, "id", "hmac", "n0", token=True).first_message())
    assert first.extensions == {"tokenauth": "true"}


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (f"r={BOTH},s=AAAA,i=4095".encode(), "iterations"),
        (f"r={BOTH},s=AAAA,i=999999999".encode(), "iterations"),  # a server that makes the client compute for hours
        (b"e=unknown-user", "first"),
    ],
)
def test_evaluate_challenge_malformed_raises_scram_error(challenge, why):
    """CVE-2026-10143: the iteration count of a server was unlimited."""
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    with pytest.raises(ScramError, match=why):
        client.evaluate_challenge(challenge)


def test_evaluate_challenge_wrong_server_signature_raises_scram_error():
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    client.evaluate_challenge(SERVER_FIRST)
    with pytest.raises(ScramError, match="signature"):
        client.evaluate_challenge(b"v=" + b"A" * 43 + b"=")


def test_scram_keys_repr_hides_keys():
    keys = scram.derive_credential(SCRAM_SHA_256, b"salted", b"some salt", 4096)
    assert repr(keys) == "Keys(iterations=4096)"


@pytest.mark.parametrize("first", [b"n,,n=" + b"a" * 9000 + b",r=x", b"n,,n=a,r=x" + b",a=b" * 2250])
def test_parse_client_first_longer_than_limit_raises_scram_error(first):
    """An unauthenticated message may have 512 KiB: matching it blocked the event loop for 150 ms."""
    with pytest.raises(ScramError):
        scram.parse_client_first(first)
