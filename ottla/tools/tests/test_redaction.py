"""Redaction of credentials in the output of all tools."""

from __future__ import annotations

import pytest

from ottla.controller.control.scram_credentials import parse_scram_option
from ottla.controller.metadata.snapshot_files import SnapshotContents, encode_snapshot
from ottla.jobs.job import run_to_end
from ottla.runtime.real_disk import RealDisk
from ottla.tools.dump import dump_file, redact_record
from ottla.tools.trace import format_message
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import (
    alter_configs,
    alter_user_scram_credentials,
    create_delegation_token,
    describe_delegation_token,
    incremental_alter_configs,
    renew_delegation_token,
)
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.metadata_records import ConfigRecord
from ottla.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

ALICE = parse_scram_option("SCRAM-SHA-256=[name=alice,password=a-secret]", b"some-salt-of-hers")


def test_redact_record_scram_credential_hides_keys():
    row = redact_record(ALICE)
    assert (row["name"], row["iterations"]) == ("alice", 4096)
    assert (row["salt"], row["stored_key"], row["server_key"]) == ("(hidden)",) * 3


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("listener.name.in.plain.sasl.jaas.config", True),
        ("listener.name.in.scram-sha-512.sasl.jaas.config", True),
        ("ssl.keystore.password", True),
        ("listener.name.in.ssl.key.password", True),
        ("somebodys.own.plugin", True),  # it may have any meaning
        ("listener.name.in.ssl.client.auth", False),
        ("log.retention.ms", False),
    ],
)
def test_redact_record_config_hides_secret_broker_configs(name, hidden):
    assert (redact_record(ConfigRecord(4, "1", name, "value"))["value"] == "(hidden)") is hidden
    assert redact_record(ConfigRecord(2, "topic", name, "value"))["value"] == "value"


def test_dump_metadata_hides_credentials(tmp_path):
    password = ConfigRecord(4, "1", "ssl.keystore.password", "b-secret")
    raw = run_to_end(encode_snapshot(SnapshotContents([ALICE, password]), 0, 0))
    path = tmp_path / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(raw)
    text = repr(list(dump_file(RealDisk(), str(path))))
    assert "alice" in text
    assert "secret" not in text
    assert ALICE.stored_key.hex() not in text
    assert "some-salt" not in text


def test_format_message_sasl_hides_credentials():
    lines = list(format_message(SaslAuthenticateRequest(b"\0alice\0a-secret"), 2))
    lines += format_message(SaslAuthenticateResponse(0, None, b"v=a-secret"), 2)
    up = alter_user_scram_credentials.ScramCredentialUpsertion("alice", 1, 4096, b"salt", b"a-secret")
    lines += format_message(alter_user_scram_credentials.AlterUserScramCredentialsRequest([], [up]), 0)
    assert "secret" not in "".join(lines)
    assert "alice" in "".join(lines)


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("ssl.keystore.password", True),
        ("listener.name.in.plain.sasl.jaas.config", True),
        ("delegation.token.secret.key", True),
        ("log.retention.ms", False),
        ("somebodys.own.plugin", True),  # it may have any meaning
    ],
)
@pytest.mark.parametrize("kind", [4, 2])
def test_format_message_alter_configs_hides_secrets(name: str, hidden: bool, kind: int) -> None:
    row = incremental_alter_configs.AlterableConfig(name, 0, "a-secret")
    alter_request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        [incremental_alter_configs.AlterConfigsResource(kind, "1", [row])]
    )
    legacy = alter_configs.AlterConfigsRequest(
        [alter_configs.AlterConfigsResource(kind, "1", [alter_configs.AlterableConfig(name, "a-secret")])]
    )
    for request, version in ((alter_request, 1), (legacy, 2)):
        text = "".join(format_message(request, version))
        assert name in text
        assert ("a-secret" in text) is (not hidden or kind == 2)


def test_format_message_delegation_token_hides_hmac() -> None:
    lines = list(
        format_message(create_delegation_token.CreateDelegationTokenResponse(hmac=b"a-secret", token_id="t"), 3)
    )
    lines += format_message(renew_delegation_token.RenewDelegationTokenRequest(b"a-secret"), 2)
    lines += format_message(
        describe_delegation_token.DescribeDelegationTokenResponse(
            tokens=[describe_delegation_token.DescribedDelegationToken(hmac=b"a-secret")]
        ),
        3,
    )
    assert "secret" not in "".join(lines)


def test_format_message_envelope_hides_embedded_request() -> None:
    renew = encode_request(
        ApiKey.RENEW_DELEGATION_TOKEN, 2, 1, "c", renew_delegation_token.RenewDelegationTokenRequest(b"a-secret")
    )[4:]
    lines = list(format_message(EnvelopeRequest(bytes(renew), b"alice", bytes(4)), 0))
    lines += format_message(EnvelopeResponse(b"a-secret"), 0)
    assert "secret" not in "".join(lines)
    assert "alice" in "".join(lines)
