"""What lets somebody in is shown by no tool."""

from __future__ import annotations

import pytest

from ottla.controller.scram import read_option
from ottla.controller.snapshots import Snapshot, snapshot_bytes
from ottla.tools.dump import segment_rows, shown
from ottla.tools.trace import lines_of
from ottla.wire.messages import alter_user_scram_credentials as au
from ottla.wire.messages.metadata_records import ConfigRecord
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

ALICE = read_option("SCRAM-SHA-256=[name=alice,password=a-secret]", b"some-salt-of-hers")


def test_a_dump_names_users_without_their_keys():
    row = shown(ALICE)
    assert (row["name"], row["iterations"]) == ("alice", 4096)
    assert (row["salt"], row["stored_key"], row["server_key"]) == ("(hidden)",) * 3


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("listener.name.in.plain.sasl.jaas.config", True),
        ("listener.name.in.scram-sha-512.sasl.jaas.config", True),
        ("ssl.keystore.password", True),
        ("listener.name.in.ssl.key.password", True),
        ("somebodys.own.plugin", True),  # it may be anything
        ("listener.name.in.ssl.client.auth", False),
        ("log.retention.ms", False),
    ],
)
def test_a_dump_shows_settings_but_for_secrets(name, hidden):
    assert (shown(ConfigRecord(4, "1", name, "value"))["value"] == "(hidden)") is hidden
    assert shown(ConfigRecord(2, "topic", name, "value"))["value"] == "value"


def test_a_whole_file_of_metadata_shows_none():
    password = ConfigRecord(4, "1", "ssl.keystore.password", "b-secret")
    raw = snapshot_bytes(Snapshot([ALICE, password]), 0, 0)
    text = repr(list(segment_rows(raw, "__cluster_metadata", deep=True)))
    assert "alice" in text
    assert "secret" not in text
    assert ALICE.stored_key.hex() not in text
    assert "some-salt" not in text


def test_a_conversation_shows_no_token():
    lines = list(lines_of(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2))
    lines += lines_of(SaslAuthenticateResponse(0, None, b"v=a-secret"), 2)
    up = au.ScramCredentialUpsertion("alice", 1, 4096, b"salt", b"a-secret")
    lines += lines_of(au.AlterUserScramCredentialsRequest([], [up]), 0)
    assert "secret" not in "".join(lines)
    assert "alice" in "".join(lines)
