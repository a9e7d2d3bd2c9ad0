"""Addresses of controllers: from the voters record, then from the leader, then from the configuration."""

from __future__ import annotations

import pytest

from ottla.controller.raft.driver.controller_addresses import ControllerAddresses
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.store.quorum_records import QuorumRecords
from ottla.controller.raft.store.tests.test_quorum_records import voters


def endpoint_at(host: str, name: str = "CONTROLLER") -> ListenerEndpoint:
    return ListenerEndpoint(name, host, 1)


STATIC = ((1, endpoint_at("static1")), (2, endpoint_at("static2")))


def test_dial_address_prefers_voters_record_then_learned_then_static() -> None:
    records = QuorumRecords()
    addresses = ControllerAddresses(9, QuorumConfig(static_voters=STATIC), lambda: records.voters)
    assert addresses.dial_address(2) == ("static2", 1)
    addresses.learn(2, [endpoint_at("told2")])
    assert addresses.dial_address(2) == ("told2", 1)
    records.replay(5, voters(2))
    assert addresses.dial_address(2) == ("host2", 9093)
    assert addresses.dial_address(1) == ("static1", 1)
    assert addresses.dial_address(3) is None


@pytest.mark.behaviour("R-240")
def test_endpoint_requires_the_named_listener() -> None:
    addresses = ControllerAddresses(9, QuorumConfig("INTERN"), lambda: None)
    addresses.learn(2, [endpoint_at("outside"), endpoint_at("inside", "INTERN")])
    assert addresses.dial_address(2) == ("inside", 1)
    assert addresses.endpoint(2, "OTHER") is None


def test_learn_without_id_or_endpoints_is_ignored() -> None:
    addresses = ControllerAddresses(9, QuorumConfig(), lambda: None)
    addresses.learn(-1, [endpoint_at("nowhere")])
    addresses.learn(3, [])
    assert addresses.learned_node_ids == set()


def test_endpoints_of_own_node_are_configured() -> None:
    addresses = ControllerAddresses(2, QuorumConfig(endpoints=(endpoint_at("here"),)), lambda: voters(1, 2))
    assert addresses.endpoints_of(2) == (endpoint_at("here"),)
    assert addresses.endpoint(1, "CONTROLLER") == ListenerEndpoint("CONTROLLER", "host1", 9093)


@pytest.mark.behaviour("R-223")
def test_bootstrap_servers_have_negative_ids_and_static_voters_their_ids() -> None:
    two = ControllerAddresses(
        9, QuorumConfig(static_voters=STATIC, bootstrap_servers=(("a", 1), ("b", 2))), lambda: None
    )
    assert two.bootstrap == (-2, -3)
    assert [two.dial_address(peer) for peer in (-2, -3, -4)] == [("a", 1), ("b", 2), None]
    assert ControllerAddresses(9, QuorumConfig(static_voters=STATIC), lambda: None).bootstrap == (1, 2)
