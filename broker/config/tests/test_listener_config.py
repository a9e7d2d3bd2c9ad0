"""Roles, listeners and voters from Kafka's settings, and refused combinations."""

from __future__ import annotations

import pytest

from ottla.broker.config.listener_config import (
    ConfigException,
    ListenerAddress,
    find_config_problems,
    parse_bootstrap_servers,
    parse_listener,
    parse_voter,
)
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.startup_checks import check_startup_values
from ottla.controller.raft.quorum_config import ListenerEndpoint, QuorumConfig
from ottla.controller.raft.state_machine.quorum_timeouts import QuorumTimeouts


def values_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.split())


# Three nodes, each broker and controller; static voters.
COMBINED = """
process.roles=broker,controller
node.id=2
controller.quorum.voters=1@one:9093,2@two:9093,3@three:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://two.example:9092
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
broker.rack=b
"""
# One of three controllers beside three brokers.
CONTROLLER_ONLY = """
process.roles=controller
node.id=1
controller.quorum.voters=1@one:9093,2@two:9093,3@three:9093
listeners=CONTROLLER://one:9093
controller.listener.names=CONTROLLER
"""
BROKER_ONLY = """
process.roles=broker
node.id=4
controller.quorum.voters=1@one:9093,2@two:9093,3@three:9093
listeners=INSIDE://:9092,OUTSIDE://:19092
advertised.listeners=INSIDE://four:9092,OUTSIDE://four.example:19092
inter.broker.listener.name=INSIDE
controller.listener.names=CONTROLLER
listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT
"""
# Dynamic voters; the settings contain bootstrap servers only.
DYNAMIC = """
process.roles=broker,controller
node.id=3
controller.quorum.bootstrap.servers=one:9093,two:9093,three:9093
listeners=PLAINTEXT://three:9092,CONTROLLER://three:9093
controller.listener.names=CONTROLLER
controller.quorum.election.timeout.ms=300
controller.quorum.fetch.timeout.ms=700
controller.quorum.request.timeout.ms=900
controller.quorum.fetch.max.bytes=5000
controller.quorum.auto.join.enable=true
"""
VOTERS = (
    (1, ListenerEndpoint("CONTROLLER", "one", 9093)),
    (2, ListenerEndpoint("CONTROLLER", "two", 9093)),
    (3, ListenerEndpoint("CONTROLLER", "three", 9093)),
)


@pytest.mark.parametrize(("text", "node_id"), [(COMBINED, 2), (CONTROLLER_ONLY, 1), (BROKER_ONLY, 4), (DYNAMIC, 3)])
def test_settings_of_kafka_clusters_are_accepted(text: str, node_id: int) -> None:
    values = values_of(text)
    assert list(find_config_problems(values, node_id)) == []
    assert check_startup_values(values) == []
    assert not NodeConfig(values, node_id=node_id).is_standalone


def test_combined_node_with_static_voters_has_both_listeners() -> None:
    config = NodeConfig(values_of(COMBINED), node_id=2, host="", host_name="machine")
    assert config.roles == {"broker", "controller"}
    assert config.client_listeners == [ListenerAddress("PLAINTEXT", "", 9092)]
    assert config.controller_listeners == [ListenerAddress("CONTROLLER", "", 9093)]
    assert config.registered_listeners({"PLAINTEXT": 9092}) == [ListenerAddress("PLAINTEXT", "two.example", 9092)]
    assert config.quorum_config(9093) == QuorumConfig("CONTROLLER", (VOTERS[1][1],), VOTERS), (
        "every address: as the voters"
    )


def test_controller_only_and_broker_only_nodes_have_one_listener_kind() -> None:
    controller = NodeConfig(values_of(CONTROLLER_ONLY), node_id=1)
    assert controller.client_listeners == []
    assert controller.quorum_config(9093).endpoints == (ListenerEndpoint("CONTROLLER", "one", 9093),)
    broker = NodeConfig(values_of(BROKER_ONLY), node_id=4, host="")
    assert broker.controller_listeners == []
    assert broker.quorum_config() == QuorumConfig("CONTROLLER", (), VOTERS)
    assert broker.client_listeners == [ListenerAddress("INSIDE", "", 9092), ListenerAddress("OUTSIDE", "", 19092)]
    assert broker.inter_broker_listener == "INSIDE"
    assert broker.advertised_address("OUTSIDE") == ("four.example", 19092)
    assert broker.advertised_address() == ("four", 9092)


def test_dynamic_quorum_uses_bootstrap_servers() -> None:
    quorum = NodeConfig(values_of(DYNAMIC), node_id=3).quorum_config(9093)
    assert quorum.static_voters == ()
    assert quorum.bootstrap_servers == (("one", 9093), ("two", 9093), ("three", 9093))
    assert quorum.timeouts == QuorumTimeouts(300, 700, 1000, 20, request_ms=900, fetch_bytes=5000)
    assert quorum.auto_join


def test_controller_endpoints_are_in_order_of_listener_names() -> None:
    values = {
        "controller.listener.names": "B,A",
        "listeners": "A://:1,P://:9092,B://:0",
        "advertised.listeners": "P://h:9092,A://a.example:11",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,P:PLAINTEXT",
    }
    config = NodeConfig(values, host="", host_name="machine")
    assert config.quorum_config(40, 1).endpoints == (
        ListenerEndpoint("B", "machine", 40),
        ListenerEndpoint("A", "a.example", 11),
    )


@pytest.mark.behaviour("R-241")
def test_registered_listeners_replace_wildcard_host_and_port_0() -> None:
    config = NodeConfig({"listeners": "P://0.0.0.0:0,Q://[::]:0"}, host="0.0.0.0", port=0, host_name="machine")
    result = config.registered_listeners({"P": 41, "Q": 42})
    assert result == [ListenerAddress("P", "machine", 41), ListenerAddress("Q", "machine", 42)]


def test_node_without_settings_is_standalone_with_any_controller_port() -> None:
    config = NodeConfig(host="10.0.0.1", port=19092)
    assert config.is_standalone
    assert config.client_listeners == [ListenerAddress("PLAINTEXT", "10.0.0.1", 19092)]
    assert config.controller_listeners == [ListenerAddress("CONTROLLER", "10.0.0.1", 0)]
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.text("offsets.topic.replication.factor") == "1"


@pytest.mark.parametrize(
    ("values", "alone"),
    [
        ({"controller.quorum.bootstrap.servers": "localhost:9093"}, True),
        ({"controller.quorum.bootstrap.servers": "machine:9093"}, True),
        ({"controller.quorum.bootstrap.servers": "localhost:19093"}, False),
        ({"controller.quorum.bootstrap.servers": "localhost:9093,other:9093"}, False),
        ({"controller.quorum.voters": "1@localhost:9093"}, True),
        ({"controller.quorum.voters": "1@localhost:9093,2@localhost:9094"}, False),
    ],
)
def test_node_is_standalone_without_other_voters(values: dict[str, str], alone: bool) -> None:
    config = NodeConfig({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", **values}, host_name="machine")
    assert config.is_standalone is alone
    assert config.text("offsets.topic.replication.factor") == ("1" if alone else "3")
    assert ("offsets.topic.replication.factor" in config.static_values) is alone


def test_node_that_joined_a_cluster_is_not_standalone() -> None:
    config = NodeConfig()
    assert config.text("transaction.state.log.min.isr") == "1"
    config.mark_joined_cluster()
    assert config.text("transaction.state.log.min.isr") == "2"


# (settings that are changed in the text, which setting is refused, words of the line)
REFUSED = [
    (COMBINED, {"node.id": "4"}, "controller.quorum.voters", "not this node, 4"),
    (COMBINED, {"broker.id": "9"}, "broker.id", "leave broker.id out"),
    (COMBINED, {"controller.quorum.voters": "1@one"}, "controller.quorum.voters", "HOST:PORT"),
    (COMBINED, {"controller.quorum.voters": "one:9093"}, "controller.quorum.voters", "ID@HOST:PORT"),
    (COMBINED, {"controller.quorum.voters": "2@a:1,2@b:1"}, "controller.quorum.voters", "twice"),
    (COMBINED, {"controller.listener.names": "C"}, "controller.listener.names", "C is not among the listeners"),
    (COMBINED, {"controller.listener.names": "CONTROLLER,PLAINTEXT"}, "listeners", "no listener to clients"),
    (COMBINED, {"inter.broker.listener.name": "X"}, "inter.broker.listener.name", "X is not among"),
    (COMBINED, {"security.inter.broker.protocol": "PLAINTEXT"}, "security.inter.broker.protocol", "cannot be set"),
    (COMBINED, {"advertised.listeners": "CONTROLLER://two:9093"}, "advertised.listeners", "no listener for clients"),
    (COMBINED, {"process.roles": "broker,king"}, "process.roles", "Unknown process role 'king'"),
    (COMBINED, {"listener.security.protocol.map": "CONTROLLER:PLAIN"}, "listener.security.protocol.map", "PLAIN"),
    (COMBINED, {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"}, "listeners", "add PLAINTEXT:PLAINTEXT"),
    (BROKER_ONLY, {"node.id": "2"}, "controller.quorum.voters", "a broker only"),
    (BROKER_ONLY, {"controller.quorum.voters": ""}, "controller.quorum.bootstrap.servers", "controllers' addresses"),
    (BROKER_ONLY, {"controller.listener.names": "INSIDE"}, "listeners", "a broker only"),
    (BROKER_ONLY, {"controller.listener.names": "C"}, "listener.security.protocol.map", "add C:PLAINTEXT"),
    (BROKER_ONLY, {"controller.quorum.auto.join.enable": "true"}, "controller.quorum.auto.join.enable", "controllers"),
    (CONTROLLER_ONLY, {"listeners": "CONTROLLER://one:1,P://:2"}, "listeners", "a controller only"),
    (CONTROLLER_ONLY, {"listeners": "P://one:1"}, "controller.listener.names", "CONTROLLER is not among"),
    (CONTROLLER_ONLY, {"inter.broker.listener.name": "CONTROLLER"}, "controller.listener.names", "must not contain"),
    (CONTROLLER_ONLY, {"inter.broker.listener.name": "X"}, "inter.broker.listener.name", "X not found in"),
    (
        CONTROLLER_ONLY,
        {"inter.broker.listener.name": "SSL", "security.inter.broker.protocol": "SSL"},
        "security.inter.broker.protocol",
        "cannot be set",
    ),
    (
        CONTROLLER_ONLY,
        {"security.inter.broker.protocol": "TLS"},
        "security.inter.broker.protocol",
        "unknown security protocol: TLS",
    ),
    (
        CONTROLLER_ONLY,
        {"security.inter.broker.protocol": "SASL_SSL", "sasl.enabled.mechanisms": "PLAIN"},
        "sasl.mechanism.inter.broker.protocol",
        "must be included in sasl.enabled.mechanisms (PLAIN)",
    ),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:1"}, "advertised.listeners", "different name"),
    (BROKER_ONLY, {"controller.listener.names": "CONTROLLER,C"}, "listener.security.protocol.map", "add C:PLAINTEXT"),
    (CONTROLLER_ONLY, {"advertised.listeners": "X://one:1"}, "advertised.listeners", "add X:PLAINTEXT"),
    (BROKER_ONLY, {"early.start.listeners": "CONTROLLER"}, "early.start.listeners", "contains listener CONTROLLER"),
    (DYNAMIC, {"controller.quorum.bootstrap.servers": "one"}, "controller.quorum.bootstrap.servers", "HOST:PORT"),
    (
        DYNAMIC,
        {"security.inter.broker.protocol": "TLS"},
        "security.inter.broker.protocol",
        "unknown security protocol: TLS",
    ),
    (COMBINED, {"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://g:2"}, "advertised.listeners", "twice"),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:SSL,,C:SSL"}, "listener.security.protocol.map", "''"),
    (COMBINED, {"listener.security.protocol.map": "PLAINTEXT:SSL,:SSL"}, "listener.security.protocol.map", "':SSL'"),
    (BROKER_ONLY, {"early.start.listeners": "CONTROLLER"}, "early.start.listeners", "CONTROLLER"),
    (CONTROLLER_ONLY, {"inter.broker.listener.name": "CONTROLLER"}, "controller.listener.names", "must not contain"),
]


@pytest.mark.behaviour("R-239")
@pytest.mark.parametrize(("text", "changed", "key", "problem"), REFUSED)
def test_inconsistent_settings_are_refused(text: str, changed: dict[str, str], key: str, problem: str) -> None:
    values = {**values_of(text), **changed}
    found = list(find_config_problems(values, int(values["node.id"])))
    assert any(k == key and problem in why for k, why in found), found
    assert all("\n" not in why for _, why in found)


def test_inter_broker_mechanism_enabled_at_its_listener_is_accepted() -> None:
    values = {
        **values_of(BROKER_ONLY),
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "GSSAPI",
    }
    assert [key for key, _ in find_config_problems(values, 4)] == ["sasl.mechanism.inter.broker.protocol"]
    assert (
        list(find_config_problems({**values, "listener.name.inside.sasl.enabled.mechanisms": "GSSAPI,PLAIN"}, 4)) == []
    )


@pytest.mark.behaviour("S-302")
def test_controller_listener_in_lower_case_without_protocol_is_refused() -> None:
    values = values_of("process.roles=broker node.id=4 listeners=PLAINTEXT://:1 controller.quorum.voters=1@a:1")
    found = list(find_config_problems({**values, "controller.listener.names": "controller"}, 4))
    assert [key for key, _ in found] == ["listener.security.protocol.map"]
    assert list(find_config_problems({**values, "controller.listener.names": "CONTROLLER"}, 4)) == []


def test_process_roles_without_node_id_is_refused() -> None:
    assert ("node.id", "process.roles needs a node.id") in list(
        find_config_problems({"process.roles": "broker,controller"}, -1)
    )


@pytest.mark.parametrize(
    ("advertised", "chosen"), [("A://h:1", "PLAINTEXT"), ("B://h:1", "PLAINTEXT"), ("B://h:1,A://h:2", "PLAINTEXT")]
)
def test_inter_broker_listener_without_advertised_address_is_refused(advertised: str, chosen: str) -> None:
    values = {
        "listeners": "PLAINTEXT://:1,A://:2,B://:3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,B:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": advertised,
    }
    assert [key for key, why in find_config_problems(values, 1) if chosen in why] == ["security.inter.broker.protocol"]
    assert not list(find_config_problems({**values, "inter.broker.listener.name": advertised[0]}, 1))


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, False),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, True),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN", "sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN"}, False),
        ({"sasl.enabled.mechanisms": "PLAIN"}, True),
        ({"listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN"}, True),
        ({"sasl.enabled.mechanisms": "PLAIN", "inter.broker.listener.name": "SSL"}, False),
    ],
)
def test_inter_broker_mechanism_not_enabled_is_refused(more: dict[str, str], refused: bool) -> None:
    values = {"listeners": "SASL_SSL://:1,SSL://:2", "inter.broker.listener.name": "SASL_SSL", **more}
    keys = [key for key, _ in find_config_problems(values, 1)]
    assert keys == ["sasl.mechanism.inter.broker.protocol"] * refused


def test_negative_broker_id_is_refused() -> None:
    assert [key for key, _ in find_config_problems({"broker.id": "-3"}, -1)] == ["broker.id"]


@pytest.mark.parametrize(
    "text", ["h", "h:", "h:x", "h:65536", "P://h", "h:²", "P:/h:1", "P://a b:1", "P://h/x:1", "h:" + "9" * 5_000]
)
def test_parse_listener_invalid_address_raises(text: str) -> None:
    with pytest.raises(ConfigException):
        parse_listener(text)


@pytest.mark.behaviour("S-302")
def test_parse_voter_and_listener_accept_ipv6_addresses() -> None:
    assert parse_voter("3@[::1]:9093") == (3, "::1", 9093)
    assert parse_listener("P://[fe80::1]:9") == ("P", "fe80::1", 9)


def test_bootstrap_servers_ignore_listener_name() -> None:
    values = {"controller.quorum.bootstrap.servers": "PLAINTEXT://h:1,[::1]:2"}
    assert parse_bootstrap_servers(values) == (("h", 1), ("::1", 2))
