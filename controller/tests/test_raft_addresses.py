"""Where controllers are reached: the log's word first, then a leader's own, then the settings."""

from __future__ import annotations

from ottla.controller.quorum_config import Endpoint, QuorumConfig
from ottla.controller.raft.addresses import Addresses
from ottla.controller.raft.quorum_records import QuorumRecords
from ottla.controller.tests.test_quorum_records import voters


def at(host: str, name: str = "CONTROLLER") -> Endpoint:
    return Endpoint(name, host, 1)


STATIC = ((1, at("static1")), (2, at("static2")))


def test_the_voters_record_counts_before_what_was_told_and_that_before_the_settings() -> None:
    records = QuorumRecords()
    addresses = Addresses(9, QuorumConfig(static_voters=STATIC), lambda: records.voters)
    assert addresses.of(2) == ("static2", 1)
    addresses.tell(2, [at("told2")])
    assert addresses.of(2) == ("told2", 1)
    records.take(5, voters(2))
    assert addresses.of(2) == ("host2", 9093)
    assert addresses.of(1) == ("static1", 1)
    assert addresses.of(3) is None


def test_nobody_is_reached_at_another_listener_than_the_one_asked_for() -> None:
    addresses = Addresses(9, QuorumConfig("INTERN"), lambda: None)
    addresses.tell(2, [at("outside"), at("inside", "INTERN")])
    assert addresses.of(2) == ("inside", 1)
    assert addresses.endpoint(2, "OTHER") is None


def test_what_names_nobody_is_not_believed() -> None:
    addresses = Addresses(9, QuorumConfig(), lambda: None)
    addresses.tell(-1, [at("nowhere")])
    addresses.tell(3, [])
    assert addresses.told == set()


def test_this_node_is_where_its_settings_say() -> None:
    addresses = Addresses(2, QuorumConfig(endpoints=(at("here"),)), lambda: voters(1, 2))
    assert addresses.endpoints_of(2) == (at("here"),)
    assert addresses.endpoint(1, "CONTROLLER") == Endpoint("CONTROLLER", "host1", 9093)


def test_r223_bootstrap_servers_have_numbers_of_their_own_and_static_voters_their_ids() -> None:
    two = Addresses(9, QuorumConfig(static_voters=STATIC, bootstrap=(("a", 1), ("b", 2))), lambda: None)
    assert two.bootstrap == (-2, -3)
    assert [two.of(peer) for peer in (-2, -3, -4)] == [("a", 1), ("b", 2), None]
    assert Addresses(9, QuorumConfig(static_voters=STATIC), lambda: None).bootstrap == (1, 2)
