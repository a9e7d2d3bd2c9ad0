"""List of connections on the HTTP listener: to which peers it is sent."""

from __future__ import annotations

import pytest

from ottla.broker.network.connection_list import BY_AUTHORIZER, BY_OTHER_MACHINE, refusal


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"])
def test_list_is_sent_to_the_machine_of_the_node(peer: str) -> None:
    assert refusal(peer, has_authorizer=False) == ""


@pytest.mark.parametrize("peer", ["10.0.0.1", "192.168.7.7", "fe80::1%eth0", "2001:db8::1", "", "nonsense"])
def test_list_is_not_sent_to_another_machine(peer: str) -> None:
    assert refusal(peer, has_authorizer=False) == BY_OTHER_MACHINE


@pytest.mark.parametrize("peer", ["127.0.0.1", "10.0.0.1"])
def test_list_of_a_node_with_authorizer_is_sent_to_no_peer(peer: str) -> None:
    assert refusal(peer, has_authorizer=True) == BY_AUTHORIZER
