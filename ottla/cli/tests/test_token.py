"""What a token's worker is given: the way to the cluster and the token, and nothing of who made it."""

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


def test_the_worker_gets_the_way_and_the_token() -> None:
    *kept, mechanism, jaas = client_settings(GIVEN, "id", "hmac").splitlines()
    assert set(kept) == {"security.protocol=SASL_SSL", "ssl.truststore.location=/ca.pem", "client.id=job"}
    assert mechanism == "sasl.mechanism=SCRAM-SHA-512"
    assert 'username="id" password="hmac" tokenauth="true"' in jaas


def test_nothing_secret_of_who_made_it_is_passed_on() -> None:
    assert "secret" not in client_settings(GIVEN, "id", "hmac")
    assert "/own.pem" not in client_settings(GIVEN, "id", "hmac")


@pytest.mark.parametrize("text", ["", "security.protocol=SSL\n", "security.protocol=PLAINTEXT\n"])
def test_where_nobody_logs_in_there_is_no_token_to_give(text: str) -> None:
    with pytest.raises(CommandFailed, match="takes no login"):
        client_settings(text.encode(), "id", "hmac")
