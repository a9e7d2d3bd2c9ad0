"""Ports and settings of a cluster of processes; its nodes are tested in compat_tests."""

from __future__ import annotations

import socket
import stat
import sys
from pathlib import Path

import pytest

from ottla.cluster import CLIENT_PORTS, CONTROLLER_PORTS, ClusterNode, free_ports

HOST = "127.0.0.1"
EPHEMERAL_FROM = 32_768
"""First ephemeral port of Linux; other systems begin later."""


def test_client_and_controller_ports_do_not_overlap() -> None:
    assert not set(CLIENT_PORTS) & set(CONTROLLER_PORTS)


def test_cluster_ports_are_below_the_ephemeral_range() -> None:
    assert max(*CLIENT_PORTS, *CONTROLLER_PORTS) < EPHEMERAL_FROM


def test_free_ports_skips_used_port() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        assert free_ports(HOST, 1, range(port, port + 1)) == []


def test_free_ports_address_of_other_machine_raises_os_error() -> None:
    with pytest.raises(OSError, match="assign"):
        free_ports("192.0.2.1", 1, CLIENT_PORTS)


def test_free_ports_returns_distinct_ports() -> None:
    ports = free_ports(HOST, 200, CLIENT_PORTS)
    assert len(ports) == len(set(ports)) == 200
    assert set(ports) <= set(CLIENT_PORTS)


def test_cluster_node_settings_file_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    node = ClusterNode(1, str(tmp_path / "node-1"), HOST, 9092)
    settings = Path(node.config)
    settings.write_text("an older file")
    settings.chmod(0o644)
    node.start({"ssl.keystore.password": "geheim"})
    node.wait_end()
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert settings.read_text() == "ssl.keystore.password=geheim\n"
