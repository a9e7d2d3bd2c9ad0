"""The ports of a cluster of processes; what its nodes do is in compat_tests."""

from __future__ import annotations

import socket
import stat
import sys
from pathlib import Path

import pytest

from ottla.cluster import CLIENT_PORTS, CONTROLLER_PORTS, ClusterNode, free_ports

HOST = "127.0.0.1"
DIALS_FROM = 32_768
"""The first port Linux gives to who dials; other systems begin later."""


def test_a_cluster_started_again_never_draws_a_port_one_of_its_controllers_has() -> None:
    assert not set(CLIENT_PORTS) & set(CONTROLLER_PORTS)


def test_no_port_that_is_drawn_is_one_that_who_dials_may_be_given_before_the_node_has_it() -> None:
    assert max(*CLIENT_PORTS, *CONTROLLER_PORTS) < DIALS_FROM


def test_a_port_somebody_listens_at_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        assert free_ports(HOST, 1, range(port, port + 1)) == []


def test_an_address_of_another_machine_is_told_and_not_taken_for_one_without_free_ports() -> None:
    with pytest.raises(OSError, match="assign"):
        free_ports("192.0.2.1", 1, CLIENT_PORTS)


def test_so_many_ports_are_drawn_and_all_are_different() -> None:
    ports = free_ports(HOST, 200, CLIENT_PORTS)
    assert len(ports) == len(set(ports)) == 200
    assert set(ports) <= set(CLIENT_PORTS)


def test_settings_of_a_node_are_written_for_their_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/true")
    node = ClusterNode(1, str(tmp_path / "node-1"), HOST, 9092)
    settings = Path(node.config)
    settings.write_text("an older file")
    settings.chmod(0o644)
    node.start({"ssl.keystore.password": "geheim"})
    node.wait_end()
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert settings.read_text() == "ssl.keystore.password=geheim\n"
