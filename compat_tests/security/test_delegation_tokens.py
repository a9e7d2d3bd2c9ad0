"""Delegation tokens on a node and on Apache Kafka 4.3.1: equal responses, Kafka's tool, logins of stock clients."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from compat_tests.security.java_login import log_in_by_java
from compat_tests.security.secure_listeners import KafkaWithListeners, OttlaWithListeners, listener_settings
from compat_tests.security.test_security_cluster import NODES, SecureCluster
from compat_tests.security.test_security_cluster import SecureClusterNode as SecuredNode
from compat_tests.support.processes import OTTLA, java_tool
from compat_tests.support.raw_client import wait_until
from compat_tests.vs_kafka.sessions.token_session import USERS, run_session

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECRET = "the-tokens-secret"
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "IN": "SASL_PLAINTEXT"}


def settings(ports: Mapping[str, int], **more: str) -> dict[str, str]:
    """Return the settings of a node: the same for both kinds."""
    out = {
        **listener_settings(ports, PROTOCOLS, "127.0.0.1"),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:admin",
        "delegation.token.secret.key": SECRET,
        "delegation.token.expiry.check.interval.ms": "3600000",
        **more,
    }
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        out[f"listener.name.in.{mechanism}.sasl.jaas.config"] = f"{SCRAM} required;"
    return out


class TokenIssuingOttla(OttlaWithListeners):
    """``ottla serve`` with delegation tokens."""

    def __init__(self, data_dir: Path, **more: str) -> None:
        super().__init__(data_dir, PROTOCOLS, partial(settings, **more))


class TokenIssuingKafka(KafkaWithListeners):
    """Apache Kafka with the same settings."""

    def __init__(self, data_dir: Path, **more: str) -> None:
        super().__init__(data_dir, PROTOCOLS, partial(settings, **more))


def add_users(node: Any) -> None:
    """Add the users of the scenario."""
    for name, password in USERS.items():
        command = [OTTLA, "user", "set", name, "--password-file", "-", "--bootstrap", node.bootstrap]
        subprocess.run(command, input=password + "\n", text=True, check=True, capture_output=True)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuingOttla]:
    with TokenIssuingOttla(tmp_path_factory.mktemp("ottla") / "data") as process:
        add_users(process)
        yield process
    log = process.log.read_text()
    assert "Traceback" not in log, log
    assert not [x for x in (SECRET, *USERS.values()) if x in log]


def asking(where: Path, client: str, password: str = "", more: str = "") -> Path:
    """Return a file with the settings of a client."""
    jaas = f'{SCRAM} required username="{client}" password="{password or USERS[client]}"{more};'
    where.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas}\n")
    return where


def settings_in(file: Path) -> dict[str, str]:
    """Return the settings in a file."""
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_delegation_tokens_tool_and_java_client_use_tokens(node: TokenIssuingOttla, tmp_path: Path) -> None:
    """Create, describe, renew and expire by ``kafka-delegation-tokens.sh``; the Java client logs in between."""
    alice, there = asking(tmp_path / "alice", "alice"), f"127.0.0.1:{node.ports['IN']}"

    def tool(*arguments: str) -> str:
        way = ["--bootstrap-server", there, "--command-config", str(alice)]
        return java_tool("DelegationTokenCommand", *way, *arguments)

    made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    found = re.search(r"^(\S{22}) +(\S{86}==) +User:alice +User:alice +\[User:bob\] +", made, re.M)
    assert found is not None, made
    token_id, hmac = found.groups()
    listed = tool("--describe", "--owner-principal", "User:alice")
    assert "Total number of tokens : 1" in listed
    assert f"{token_id} " in listed
    assert hmac in listed
    assert "New expiry date" in tool("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    token = asking(tmp_path / "token", token_id, hmac, ' tokenauth="true"')
    wrong = asking(tmp_path / "wrong", token_id, "x" * 86 + "==", ' tokenauth="true"')
    no_token = asking(tmp_path / "no_token", token_id, hmac)
    cells = {x.name: settings_in(x) | {"bootstrap.servers": there} for x in (token, wrong, no_token)}
    results = log_in_by_java(cells, tmp_path / "cells")
    assert results.pop("token") == "in"
    assert {x.partition(":")[0] for x in results.values()} == {"SaslAuthenticationException"}
    assert "Completed expire operation" in tool("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Total number of tokens : 0" in tool("--describe", "--owner-principal", "User:alice")
    assert hmac not in node.log.read_text()


def ottla(node: TokenIssuingOttla, *arguments: str, config: Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command at the listener that authenticates."""
    command = [OTTLA, *arguments, "--bootstrap", f"127.0.0.1:{node.ports['IN']}", "--command-config", str(config)]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def test_ottla_token_commands_manage_tokens(node: TokenIssuingOttla, tmp_path: Path) -> None:
    admin, carol, token = asking(tmp_path / "admin", "admin"), asking(tmp_path / "carol", "carol"), tmp_path / "token"
    for_carol = ["--owner", "User:carol", "--renewer", "User:bob", "--lifetime-ms", "3600000"]
    made = ottla(node, "token", "create", *for_carol, "-o", "json", "--config-out", str(token), config=admin)
    (row,) = json.loads(made.stdout)
    assert (row["owner"], row["requester"], row["renewers"]) == ("User:carol", "User:admin", "User:bob")
    assert row["expires"] == row["at_latest"]
    assert "hmac" not in row
    assert token.stat().st_mode & 0o077 == 0
    listed = ottla(node, "token", "list", config=carol).stdout
    assert [x.split()[0] for x in listed.splitlines()] == ["id", row["id"]]
    hmac = token.read_text().partition(' password="')[2].partition('"')[0]
    assert len(hmac) == 88
    assert hmac not in listed
    assert hmac in ottla(node, "token", "list", "--show-hmac", config=carol).stdout
    assert ottla(node, "topic", "list", config=token).returncode == 0
    refused = ottla(node, "token", "create", config=token)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "token: Delegation token request not allowed" in refused.stderr
    assert ottla(node, "token", "renew", row["id"], config=carol).stdout[:10] == "expires 20"
    assert "may not describe it" in ottla(node, "token", "renew", "x" * 22, config=carol).stderr
    assert ottla(
        node, "token", "renew", "--hmac-file", "-", config=asking(tmp_path / "bob", "bob"), text=hmac + "\n"
    ).stdout
    assert "token: " in ottla(node, "token", "expire", row["id"], config=admin).stderr
    assert ottla(node, "token", "expire", row["id"], "--period-ms", "60000", config=carol).stdout.startswith(
        "expires 20"
    )
    assert ottla(node, "token", "expire", row["id"], config=carol).stdout == "expired\n"
    assert ottla(node, "token", "list", config=carol).stdout == ""
    assert "Authentication failed as" in ottla(node, "topic", "list", config=token).stderr
    assert ottla(node, "token", "expire", config=carol).returncode == 2


def test_delegation_tokens_survive_restart_and_expired_ones_are_removed(tmp_path: Path) -> None:
    often = {"delegation.token.expiry.check.interval.ms": "200"}
    admin = asking(tmp_path / "admin", "admin")

    def ids() -> list[str]:
        return [x["id"] for x in json.loads(ottla(process, "token", "list", "-o", "json", config=admin).stdout)]

    with TokenIssuingOttla(tmp_path / "data") as process:  # the check runs once an hour
        add_users(process)
        for lifetime_ms in ("1", "-1"):
            token = tmp_path / lifetime_ms
            made = ottla(
                process, "token", "create", "--lifetime-ms", lifetime_ms, "--config-out", str(token), config=admin
            )
            assert made.returncode == 0, made.stderr
        assert len(ids()) == 2
        process.kill()
    with TokenIssuingOttla(tmp_path / "data", **often) as process:
        wait_until(lambda: len(ids()) == 1)
        assert ottla(process, "topic", "list", config=tmp_path / "-1").returncode == 0
        assert "Authentication failed as" in ottla(process, "topic", "list", config=tmp_path / "1").stderr


class DelegationTokenCluster(SecureCluster):
    """Three nodes with TLS and SASL between them that issue tokens."""

    def settings(self, node: int) -> dict[str, str]:
        return super().settings(node) | {"delegation.token.secret.key": SECRET}


@pytest.mark.behaviour("S-333")
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")
def test_delegation_token_created_at_any_node_is_valid_at_each_node(tmp_path: Path) -> None:
    """Requests forwarded by two of the three nodes, over a connection that is authenticated as the broker."""
    cluster = DelegationTokenCluster(tmp_path)
    cluster.format()
    files = {}
    for member in ("alice", "broker"):
        files[member] = asking(tmp_path / member, member, f"{member}-secret")
        tls = f"ssl.truststore.location={cluster.authority.truststore.location}\n"
        files[member].write_text(files[member].read_text().replace("SASL_PLAINTEXT", "SASL_SSL") + tls)

    def at(port: int, *arguments: str, config: Path) -> subprocess.CompletedProcess[str]:
        command = [OTTLA, *arguments, "--bootstrap", f"localhost:{port}", "--command-config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    with ExitStack() as stack:
        nodes = [stack.enter_context(SecuredNode(cluster, node)) for node in NODES]
        wait_until(lambda: all(node._answers() for node in nodes))
        for port, there in zip(cluster.clients, cluster.clients[1:] + cluster.clients[:1], strict=True):
            token = tmp_path / f"token{port}"
            made = at(port, "token", "create", "--config-out", str(token), "-o", "json", config=files["alice"])
            assert made.returncode == 0, made.stderr
            row = json.loads(made.stdout)[0]
            assert row["requester"] == "User:alice"
            wait_until(lambda there=there, token=token: not at(there, "topic", "list", config=token).returncode)  # type: ignore[misc]
            refused = at(there, "token", "create", config=token).stderr
            assert refused == "ottla: token: Delegation token request not allowed\n"
            # The owner is the client, not the broker that forwards: the user of the brokers does not own the token.
            hmac = tmp_path / "hmac"
            hmac.write_text(token.read_text().partition(' password="')[2].partition('"')[0])
            renew = ["token", "renew", "--hmac-file", str(hmac)]
            assert at(port, *renew, config=files["broker"]).returncode == 1
            assert at(port, *renew, config=files["alice"]).returncode == 0
            assert at(port, "token", "expire", row["id"], config=files["alice"]).stdout == "expired\n"
    for node in nodes:
        log = node.log.read_text()
        assert "Traceback" not in log, log
        assert not [x for x in (SECRET, "alice-secret", "broker-secret") if x in log]


@pytest.mark.xdist_group(__name__)
def test_delegation_token_session_equals_kafka(tmp_path: Path) -> None:
    with TokenIssuingOttla(tmp_path / "ottla") as process:
        add_users(process)
        ours = trio.run(run_session, process.ports["IN"])
    with TokenIssuingKafka(tmp_path / "kafka") as kafka:
        add_users(kafka)
        theirs = trio.run(run_session, kafka.ports["IN"])
    different = [f"{name}: {a}, Kafka: {b}" for (name, a), (_, b) in zip(ours, theirs, strict=True) if a != b]
    assert not different, "\n".join(different)
    assert len(ours) > 60
