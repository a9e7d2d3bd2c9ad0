"""SCRAM's keys and messages: the examples of the RFCs, and what is refused."""

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


def test_a_client_speaks_as_the_example_of_rfc_7677():
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    assert client.first_message() == f"n,,n=user,r={NONCE}".encode()
    assert client.evaluate_challenge(SERVER_FIRST) == CLIENT_FINAL
    assert client.evaluate_challenge(SERVER_FINAL) is None
    assert client.is_done


def test_a_server_believes_the_proof_of_rfc_7677_and_gives_its_own():
    keys = scram.derive_credential(
        SCRAM_SHA_256, scram.salted_password(SCRAM_SHA_256, "pencil", SALT, 4096), SALT, 4096
    )
    first, final = scram.parse_client_first(f"n,,n=user,r={NONCE}".encode()), scram.parse_client_final(CLIENT_FINAL)
    signed = f"{first.bare},{scram.server_first_message(BOTH, keys)},{final.without_proof}"
    assert scram.verify_proof(SCRAM_SHA_256, keys, signed, final.proof)
    assert scram.server_final_message(scram.server_signature(SCRAM_SHA_256, keys, signed)) == SERVER_FINAL


@pytest.mark.parametrize("place", range(3))
def test_a_proof_with_one_bit_changed_proves_nothing(place):
    keys = scram.derive_credential(
        SCRAM_SHA_256, scram.salted_password(SCRAM_SHA_256, "pencil", SALT, 4096), SALT, 4096
    )
    first, final = scram.parse_client_first(f"n,,n=user,r={NONCE}".encode()), scram.parse_client_final(CLIENT_FINAL)
    signed = f"{first.bare},{scram.server_first_message(BOTH, keys)},{final.without_proof}"
    other = bytearray(final.proof)
    other[place * 15] ^= 1
    assert not scram.verify_proof(SCRAM_SHA_256, keys, signed, bytes(other))
    assert not scram.verify_proof(SCRAM_SHA_256, keys, signed, final.proof[:-1])


def test_sha_512_goes_the_same_way():
    salted = scram.salted_password(SCRAM_SHA_512, "pencil", SALT, 4096)
    keys = scram.derive_credential(SCRAM_SHA_512, salted, SALT, 4096)
    client = ScramClient(SCRAM_SHA_512, "user", "pencil", "c0")
    first = scram.parse_client_first(client.first_message())
    said = scram.server_first_message("c0s0", keys)
    final = scram.parse_client_final(client.evaluate_challenge(said.encode()) or b"")
    signed = f"{first.bare},{said},{final.without_proof}"
    assert scram.verify_proof(SCRAM_SHA_512, keys, signed, final.proof)
    assert (
        client.evaluate_challenge(scram.server_final_message(scram.server_signature(SCRAM_SHA_512, keys, signed)))
        is None
    )


def test_names_are_written_so_that_commas_and_equals_signs_come_through():
    first = scram.parse_client_first(ScramClient(SCRAM_SHA_256, "a,b=c", "x", "n0").first_message())
    assert (first.name, first.nonce, first.authorization_id) == ("a,b=c", "n0", "")


@pytest.mark.parametrize(
    "raw",
    [
        b"y,,n=user,r=abc",  # 321: asks for channel binding
        b"p=tls-unique,,n=user,r=abc",
        b"n,,n=us=3Eer,r=abc",  # another escape than the two
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,r=abc,n=user",
        "n,,n=\u00fcser,r=abc".encode(),
        b"",
        b"\xff" * 20,
    ],
)
def test_a_first_message_that_is_none_is_refused(raw):
    with pytest.raises(ScramError):
        scram.parse_client_first(raw)


@pytest.mark.parametrize(
    "raw", [b"", b"c=biws,r=abc", b"c=biws,r=abc,p=***", b"c=b,r=abc,p=AAAA", b"p=AAAA,c=biws,r=x"]
)
def test_a_last_message_that_is_none_is_refused(raw):
    with pytest.raises(ScramError):
        scram.parse_client_final(raw)


def test_the_token_extension_is_read():
    first = scram.parse_client_first(ScramClient(SCRAM_SHA_256, "id", "hmac", "n0", token=True).first_message())
    assert first.extensions == {"tokenauth": "true"}


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (f"r={BOTH},s=AAAA,i=4095".encode(), "iterations"),
        (f"r={BOTH},s=AAAA,i=999999999".encode(), "iterations"),  # a server that would have us compute for hours
        (b"e=unknown-user", "first"),
    ],
)
def test_a_client_does_not_go_on_with_a_server_that_is_none(said, why):
    """CVE-2026-10143: a client computed for as long as a server asked it to."""
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    with pytest.raises(ScramError, match=why):
        client.evaluate_challenge(said)


def test_a_client_does_not_believe_a_server_that_does_not_know_the_password():
    client = ScramClient(SCRAM_SHA_256, "user", "pencil", NONCE)
    client.evaluate_challenge(SERVER_FIRST)
    with pytest.raises(ScramError, match="signature"):
        client.evaluate_challenge(b"v=" + b"A" * 43 + b"=")


def test_keys_show_nothing_of_themselves():
    keys = scram.derive_credential(SCRAM_SHA_256, b"salted", b"some salt", 4096)
    assert repr(keys) == "Keys(iterations=4096)"


@pytest.mark.parametrize("first", [b"n,,n=" + b"a" * 9000 + b",r=x", b"n,,n=a,r=x" + b",a=b" * 2250])
def test_a_message_of_many_kilobytes_is_none(first):
    """Before anybody logged in half a mebibyte of one may come: matching it held the loop for 150 ms."""
    with pytest.raises(ScramError):
        scram.parse_client_first(first)
