"""Configuration files of the command line: Java properties files."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ottla.broker.config.listener_config import ConfigException
from ottla.cli.commands.doctor import run as run_doctor
from ottla.cli.commands.token import client_settings
from ottla.cli.connection_settings import ConnectionSettings, connection_security, read_client_config
from ottla.cli.errors import CommandFailed
from ottla.cli.node_setup.settings import read_settings
from ottla.log.java_properties import load_settings
from ottla.tools.security_setup import SecuritySetup, write_client_files

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a\\\\b" password="\u00e9";'
ESCAPED = JAAS.replace("\\", "\\\\").replace('"', '\\"').replace("\u00e9", "\\u00e9")


def _options(path: Path) -> argparse.Namespace:
    return argparse.Namespace(config=str(path), set=[], node_id=None)


def test_read_settings_server_properties_decodes_escapes(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"num.partitions=\\u0033 \nlog.retention\\.ms 1\nsasl.jaas.config={ESCAPED}\n")
    assert read_settings(_options(path)) == {
        "num.partitions": "3",
        "log.retention.ms": "1",
        "sasl.jaas.config": JAAS,
    }


def test_read_settings_malformed_escape_error_contains_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p"
    path.write_text("a=1\nb=\\u00\n")
    with pytest.raises(ConfigException, match=r"/p: Malformed .* line 2"):
        read_settings(_options(path))
    with pytest.raises(CommandFailed, match=r"/p: Malformed .* line 2"):
        read_client_config(str(path))
    assert run_doctor([str(path)]) == 2
    assert "line 2" in capsys.readouterr().err
    with pytest.raises(CommandFailed, match="line 2"):
        client_settings(path.read_bytes(), "id", "hmac")


def test_client_settings_survive_round_trip_with_escapes(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={ESCAPED}\nx=\\\\\n")
    login = connection_security(ConnectionSettings("f", read_client_config(str(path)))).login
    assert login is not None
    assert (login.mechanism, login.user, login.password) == ("PLAIN", "a\\b", "\u00e9")
    assert load_settings(client_settings(path.read_bytes(), "id", "hmac").encode())["x"] == "\\"


def test_write_client_files_contain_password_of_secured_node(tmp_path: Path) -> None:
    made = SecuritySetup(
        protocol="SASL_SSL", mechanism="SCRAM-SHA-512", password="p\\u0041", ca_certificate="C:\\ca.pem"
    )
    write_client_files(made, str(tmp_path), "localhost:9092")
    java = load_settings((tmp_path / "secure-client.properties").read_bytes())
    assert java["bootstrap.servers"] == "localhost:9092"
    assert java["ssl.truststore.location"] == "C:\\ca.pem"
    assert "sasl.password=p\\u0041\n" in (tmp_path / "secure-librdkafka.properties").read_text()
