"""``ottla cluster start --secure``: authority, certificates, credentials and client settings for all nodes."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.cli.tests.command_runs import run_command
from ottla.tools.security_setup import SecuritySetup, cluster_settings

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
        assert process.wait(60) == 0
