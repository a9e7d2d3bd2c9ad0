"""Client settings of a delegation token: connection and token, without the credentials of its creator."""

from __future__ import annotations

import pytest

from ottla.cli.commands.token import client_settings
from ottla.cli.errors import CommandFailed

GIVEN = b"""
security.protocol=SASL_SSL
ssl.truststore.location=/ca.pem
ssl.keystore.location=/own.pem
ssl.keystore.password=secret1
ssl.key.password=secret2
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="secret3";
client.id=job
"""


def test_client_settings_contain_connection_and_token() -> None:
    *kept, mechanism, jaas = client_settings(GIVEN, "id", "hmac").splitlines()
    assert set(kept) == {"security.protocol=SASL_SSL", "ssl.truststore.location=/ca.pem", "client.id=job"}
    assert mechanism == "sasl.mechanism=SCRAM-SHA-512"
    assert 'username="id" password="hmac" tokenauth="true"' in jaas


def test_client_settings_omit_credentials_of_the_creator() -> None:
    assert "secret" not in client_settings(GIVEN, "id", "hmac")
    assert "/own.pem" not in client_settings(GIVEN, "id", "hmac")


@pytest.mark.parametrize("text", ["", "security.protocol=SSL\n", "security.protocol=PLAINTEXT\n"])
def test_client_settings_without_sasl_raise_command_failed(text: str) -> None:
    with pytest.raises(CommandFailed, match="has no authentication"):
        client_settings(text.encode(), "id", "hmac")
