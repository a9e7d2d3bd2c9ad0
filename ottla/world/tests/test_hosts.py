"""Addresses as Kafka writes them."""

from __future__ import annotations

import socket

import pytest

from ottla.world.hosts import host_of


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("fe80::1:20%eth0", "fe80:0:0:0:0:0:1:20%eth0"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        (bytes([10, 0, 0, 1]), "10.0.0.1"),
        (bytes(10) + b"\xff\xff\x0a\x00\x00\x01", "10.0.0.1"),
        (bytes(15) + b"\x01", "0:0:0:0:0:0:0:1"),
        ("no:address", "no:address"),
    ],
)
def test_336_a_host_is_named_as_in_access_rules(address: str | bytes, text: str) -> None:
    assert host_of(address) == text


def test_336_who_comes_by_ipv4_to_a_listener_for_both_has_an_ipv4_address() -> None:
    """Else a rule that denies 127.0.0.1 says nothing about it."""
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::", 0))
        listener.listen(1)
        with socket.create_connection(("127.0.0.1", listener.getsockname()[1])):
            accepted, _ = listener.accept()
            with accepted:
                assert host_of(accepted.getpeername()[0]) == "127.0.0.1"
