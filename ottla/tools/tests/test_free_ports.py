"""Free ports: ranges, numbers and errors."""

from __future__ import annotations

import socket

import pytest

from ottla.tools.free_ports import CLIENT_PORTS, CONTROLLER_PORTS, free_ports

HOST = "127.0.0.1"
EPHEMERAL_FROM = 32_768
"""First ephemeral port of Linux; other systems begin later."""


def test_client_and_controller_ports_do_not_overlap() -> None:
    assert not set(CLIENT_PORTS) & set(CONTROLLER_PORTS)


def test_cluster_ports_are_below_the_ephemeral_range() -> None:
    assert max(*CLIENT_PORTS, *CONTROLLER_PORTS) < EPHEMERAL_FROM


def test_free_ports_without_enough_free_ports_raises_os_error() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=r"0 of the ports \d+ to \d+ of .* are free \(1 needed\)"):
            free_ports(HOST, 1, range(port, port + 1))


def test_free_ports_address_of_other_machine_raises_os_error() -> None:
    with pytest.raises(OSError, match="assign"):
        free_ports("192.0.2.1", 1, CLIENT_PORTS)


def test_free_ports_returns_distinct_ports() -> None:
    ports = free_ports(HOST, 200, CLIENT_PORTS)
    assert len(ports) == len(set(ports)) == 200
    assert set(ports) <= set(CLIENT_PORTS)
