"""``ottla cluster start --secure``: authority, certificates, credentials and client settings for all nodes."""

from __future__ import annotations

import contextlib
import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.cli.tests.command_runs import run_command
from ottla.tools.security_setup import (
    SecuritySetup,
    SecuritySetupFailed,
    cluster_settings,
    ensure_security_setup,
    load_join_credentials,
)

SETUP = SecuritySetup("SASL_SSL", "SCRAM-SHA-512", "secret", "/d/secure-ca.pem")


def test_cluster_settings_use_plain_for_controllers_and_scram_for_brokers() -> None:
    values = cluster_settings(SETUP, "/d", "127.0.0.1", 9092)
    assert values["sasl.mechanism.controller.protocol"] == "PLAIN"
    assert values["listener.name.controller.sasl.enabled.mechanisms"] == "PLAIN"
    assert 'user_admin="secret"' in values["listener.name.controller.plain.sasl.jaas.config"]
    assert values["sasl.mechanism.inter.broker.protocol"] == "SCRAM-SHA-512"
    assert not [name for name in values if name.startswith("listener.name.controller.scram")]
    plain = SETUP._replace(mechanism="PLAIN")
    assert "listener.name.controller.sasl.enabled.mechanisms" not in cluster_settings(plain, "/d", "127.0.0.1", 9092)


def test_cluster_start_unsecured_directory_with_tls_fails(tmp_path: Path) -> None:
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "meta.properties").write_text("")
    with pytest.raises(ottla.ClusterFailed, match="was created without security"):
        ottla.Cluster(3, data_dir=str(tmp_path), tls=True).start()
    assert not (tmp_path / "secure.json").exists()


def test_cluster_start_unknown_mechanism_fails(tmp_path: Path) -> None:
    with pytest.raises(ottla.ClusterFailed, match="SCRAM-MD5"):
        ottla.Cluster(3, data_dir=str(tmp_path), sasl="SCRAM-MD5").start()


def test_cluster_start_secure_prints_client_files_and_requires_login(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "cluster", "start", "--secure", "--port", "0"]
    options = ["--data-dir", f"{tmp_path}/d", "--log-level", "error"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        while not lines or "kafka-python" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        try:
            files = {Path(line.split()[0]) for line in lines if "/d/secure-" in line}
            assert len(files) == 4
            assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
            client = ("--command-config", f"{tmp_path}/d/secure-client.properties")
            assert run_command("topic", "create", "t", "--partitions", "3", *client).status == 0
            assert run_command("produce", "t", *client, stdin=b"a\nb\n").status == 0
            done = run_command("consume", "t", "--exit", *client)
            assert sorted(done.out.splitlines()) == [b"a", b"b"]
            first = next(line.split()[2].rstrip(",") for line in lines if line.startswith("node 1:"))
            assert run_command("topic", "list", "-b", first).status == 1
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


@contextlib.contextmanager
def secured_node(directory: Path, *options: str) -> Iterator[str]:
    """Run ``ottla serve --secure`` on a free port until its client settings are written; yield its address."""
    command = [sys.executable, "-m", "ottla.cli.main", "serve", "--secure", "--log-level", "error"]
    command += ["--data-dir", str(directory), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        started = process.stdout.readline()
        assert started.startswith("Kafka Server started: "), started
        while "kafka-python" not in process.stdout.readline():
            assert process.poll() is None
        try:
            yield started.split()[3].rstrip(",")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0


def test_secured_node_joins_secured_cluster_and_starts_again_without_join(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with secured_node(one, "--listen", "127.0.0.1:0") as first:
        at = ("--node-id", "2", "--listen", "127.0.0.1:0")
        joining = (*at, "--join", first, "--join-credentials", f"{one}/secure-join.json")
        with secured_node(two, *joining):
            client = ("--command-config", f"{two}/secure-client.properties")
            created = run_command("topic", "create", "t", "--replication-factor", "2", *client)
            assert created.status == 0, created.err
            assert run_command("produce", "t", *client, stdin=b"a\n").status == 0
        with secured_node(two, *at):
            assert run_command("consume", "t", "--exit", *client).out == b"a\n"
    assert (one / "secure-ca.pem").read_text() == (two / "secure-ca.pem").read_text()
    assert (one / "secure-server.pem").read_text() != (two / "secure-server.pem").read_text()
    assert stat.S_IMODE((two / "secure-join.json").stat().st_mode) == 0o600


def test_secured_node_without_credentials_of_the_cluster_does_not_join(tmp_path: Path) -> None:
    at = ("serve", "--data-dir", f"{tmp_path}/d", "--join", "127.0.0.1:1")
    done = run_command(*at, "--secure")
    assert done.status == 2
    assert "copy secure-join.json from a node of the cluster" in done.err
    done = run_command(*at, "--join-credentials", "x")
    assert (done.status, done.err) == (2, "ottla serve: --join-credentials FILE is for --secure --join HOST:PORT\n")
    assert not (tmp_path / "d").exists()


CREDENTIALS = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "password": "p", "ca_key": "k", "ca_certificate": "c"}
OTHER_FILES = (
    *("", "[]", "{}", "[" * 100_000, json.dumps(dict.fromkeys(("protocol", "mechanism"), "x"))),
    *(
        json.dumps({**CREDENTIALS, **changed})
        for changed in (
            {"protocol": "SASL_PLAINTEXT"},
            {"protocol": "SSL"},
            {"protocol": "OPENSSL", "mechanism": ""},
            {"mechanism": "GSSAPI"},
            {"mechanism": ""},
            {"password": 'a"; b="c'},
            {"ca_key": 1},
        )
    ),
)


@pytest.mark.parametrize("text", OTHER_FILES)
def test_join_credentials_of_another_file_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_text(text)
    with pytest.raises(SecuritySetupFailed, match=r"not the file secure-join\.json"):
        load_join_credentials(str(tmp_path / "f"))
    with pytest.raises(SecuritySetupFailed, match="No such file"):
        load_join_credentials(str(tmp_path / "none"))


def test_setup_of_a_failed_join_is_replaced_until_the_directory_is_formatted(tmp_path: Path) -> None:
    made = {name: ensure_security_setup(str(tmp_path / name), ()) for name in ("one", "two")}
    known = {name: load_join_credentials(f"{tmp_path}/{name}/secure-join.json") for name in made}
    joining = tmp_path / "joining"
    for name, setup in made.items():
        assert ensure_security_setup(str(joining), (), joined=known[name]).password == setup.password
        assert (joining / "secure-ca.pem").read_text() == (tmp_path / name / "secure-ca.pem").read_text()
    (joining / "meta.properties").touch()
    assert ensure_security_setup(str(joining), (), joined=known["one"]).password == made["two"].password


def test_node_that_has_joined_starts_without_the_copied_credentials(tmp_path: Path) -> None:
    ensure_security_setup(f"{tmp_path}/d", ())
    at = ("serve", "--secure", "--data-dir", f"{tmp_path}/d", "--join", "127.0.0.1:1", "--join-credentials", "none")
    done = run_command(*at)
    assert (done.status, done.err) == (2, "ottla serve: none: No such file or directory\n")
    (tmp_path / "d" / "meta.properties").touch()
    assert "Connection refused" in run_command(*at).err


def test_node_with_copied_credentials_creates_no_cluster_of_its_own(tmp_path: Path) -> None:
    ensure_security_setup(f"{tmp_path}/one", ())
    two = tmp_path / "two"
    at = ("serve", "--secure", "--data-dir", str(two), "--listen", "127.0.0.1:0")
    joining = ("--join", "127.0.0.1:1")
    done = run_command(*at, *joining, "--join-credentials", f"{tmp_path}/one/secure-join.json")
    assert "Connection refused" in done.err
    done = run_command(*at)
    assert done.status == 2
    assert done.err == (
        f"ottla serve: {two} has the credentials of a cluster that the node has not joined: add --join HOST:PORT, "
        f"or remove {two}/secure.json to create a new cluster\n"
    )
    assert not (two / "meta.properties").exists()
    assert "Connection refused" in run_command(*at, *joining).err, "the copy is there already"
    (two / "secure.json").unlink()
    with secured_node(two, "--listen", "127.0.0.1:0"):
        pass
    assert (two / "secure-ca.pem").read_text() != (tmp_path / "one" / "secure-ca.pem").read_text()


def test_node_with_credentials_of_its_own_does_not_join_with_them(tmp_path: Path) -> None:
    ensure_security_setup(f"{tmp_path}/d", ())
    done = run_command("serve", "--secure", "--data-dir", f"{tmp_path}/d", "--join", "127.0.0.1:1")
    assert (done.status, "copy secure-join.json from a node" in done.err) == (2, True)


def test_directory_of_a_version_without_join_file_gets_one_with_a_new_authority(tmp_path: Path) -> None:
    one = tmp_path / "one"
    made = ensure_security_setup(str(one), ())
    (one / "meta.properties").touch()
    first = (one / "secure-ca.pem").read_text()
    (one / "secure-join.json").unlink()
    with pytest.raises(SecuritySetupFailed, match=r"stop its node, remove secure-ca\.pem, start the node again"):
        load_join_credentials(str(one / "secure-join.json"))
    assert ensure_security_setup(str(one), ()) == made
    assert not (one / "secure-join.json").exists()
    (one / "secure-ca.pem").unlink()
    assert ensure_security_setup(str(one), ()) == made
    assert (one / "secure-ca.pem").read_text() != first
    joined = load_join_credentials(str(one / "secure-join.json"))
    assert (joined.password, joined.ca_certificate) == (made.password, (one / "secure-ca.pem").read_text())
    (one / "secure-ca.pem").unlink()
    ensure_security_setup(str(one), ())
    assert (one / "secure-ca.pem").read_text() == joined.ca_certificate, "the authority is kept"
