"""Roles, listeners and quorum voters from Kafka's settings, and their validation.

Source: ``KafkaConfig.validateValues``, ``QuorumConfig.java``, ``SocketServerConfigs.java`` (apache/kafka 4.3.1).

From KIP-103 (named listeners), KIP-500 (roles), KIP-853 (bootstrap servers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.controller.config.java_values import parse_integer, split

ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
LOCAL_HOST = ("localhost", "127.0.0.1", "::1")
BROKER_ROLE, CONTROLLER_ROLE = "broker", "controller"
DEFAULT_LISTENER = "PLAINTEXT"
DEFAULT_CONTROLLER_LISTENER = "CONTROLLER"
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Numbers of the security protocols in registration records, by name."""
QUORUM_VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTO_JOIN = "controller.quorum.auto.join.enable"
CONTROLLER_LISTENER_NAMES = "controller.listener.names"
EARLY_START_LISTENERS = "early.start.listeners"
PROCESS_ROLES = "process.roles"
INTER_BROKER_LISTENER = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
ENABLED_MECHANISMS, GSSAPI = "sasl.enabled.mechanisms", "GSSAPI"
PROTOCOL_MAP = "listener.security.protocol.map"
LISTENERS = "listeners"
ADVERTISED_LISTENERS = "advertised.listeners"
JOIN_PROPERTIES_FILE = "joined.properties"
"""Name of the file with the controllers' addresses, of a node that joined a cluster, in the metadata log directory."""

_HOST_PORT = re.compile(r"\[?([0-9a-zA-Z\-%._:]*)]?:0*([0-9]{1,5})")
"""Pattern of ``HOST:PORT``, as ``SocketServerConfigs.URI_PARSE_REGEXP``."""

ConfigProblem = tuple[str, str]
"""Name of an invalid setting, and the problem."""


class ConfigException(Exception):
    """Raised for an invalid setting; the message is one line for the user."""


class ListenerAddress(NamedTuple):
    """Listener with its bound or advertised address and security protocol number; port 0: any free port."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class VoterAddress(NamedTuple):
    """Voter of ``controller.quorum.voters``: node id and address."""

    id: int
    host: str
    port: int


def parse_host_port(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``; an IPv6 address is in brackets.

    The host may be empty, the port is from 0 to 65535.

    Raises:
        ConfigException: malformed address.
    """
    found = _HOST_PORT.fullmatch(text.strip())
    if found is None or int(found[2]) > 65535:
        raise ConfigException(f"{text.strip()!r} is not an address: HOST:PORT or NAME://HOST:PORT expected")
    return found[1], int(found[2])


def parse_listener(text: str) -> tuple[str, str, int]:
    """Return name (in upper case), host and port of ``NAME://HOST:PORT``; without a name it is PLAINTEXT.

    Raises:
        ConfigException: malformed address.
    """
    name, separator, address = text.strip().partition("://")
    host, port = parse_host_port(address if separator else text)
    return (name.upper() if separator else DEFAULT_LISTENER), host, port


def parse_voter(text: str) -> VoterAddress:
    """Return the voter of an entry ``ID@HOST:PORT``.

    Raises:
        ConfigException: malformed entry.
    """
    number, separator, address = text.strip().partition("@")
    try:
        voter_id = parse_integer(number if separator else "", 32)
    except ValueError:
        raise ConfigException(f"{text.strip()!r} is not a voter: ID@HOST:PORT expected") from None
    return VoterAddress(voter_id, *parse_host_port(address))


def split_list(values: Mapping[str, str], key: str) -> list[str]:
    """Return the entries of the comma-separated setting ``key``, without empty ones; no entries if it is not set."""
    return [x.strip() for x in values.get(key, "").split(",") if x.strip()]


def controller_listener_names(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return ``controller.listener.names`` in upper case, CONTROLLER by default; nodes connect to the first."""
    return tuple(x.upper() for x in split_list(values, CONTROLLER_LISTENER_NAMES)) or (DEFAULT_CONTROLLER_LISTENER,)


def parse_roles(values: Mapping[str, str]) -> frozenset[str]:
    """Return ``process.roles`` in lower case, without a check of the names; both roles by default."""
    return frozenset(x.lower() for x in split_list(values, PROCESS_ROLES)) or frozenset((BROKER_ROLE, CONTROLLER_ROLE))


def parse_voters(values: Mapping[str, str]) -> tuple[VoterAddress, ...]:
    """Return the entries of ``controller.quorum.voters``.

    Raises:
        ConfigException: malformed entry.
    """
    return tuple(parse_voter(x) for x in split_list(values, QUORUM_VOTERS))


def parse_bootstrap_servers(values: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Return host and port of the entries of ``controller.quorum.bootstrap.servers``.

    A name before ``://`` is ignored, as by ``Utils.getHost``.

    Raises:
        ConfigException: malformed entry.
    """
    return tuple(parse_host_port(x.rpartition("://")[2]) for x in split_list(values, BOOTSTRAP_SERVERS))


def parse_protocol_map(values: Mapping[str, str]) -> dict[str, str]:
    """Return the security protocol by listener name, from ``listener.security.protocol.map``.

    Without that setting each protocol is that of the listener with its name and, if no listener name implies TLS or
    SASL, controller listeners are PLAINTEXT.

    Raises:
        ConfigException: malformed entry.
    """
    out = {name: name for name in SECURITY_PROTOCOLS}
    if PROTOCOL_MAP not in values:
        if not any(x.upper().startswith(("SSL:", "SASL_")) for x in split_list(values, LISTENERS)):
            out.update((name, DEFAULT_LISTENER) for name in controller_listener_names(values) if name not in out)
        return out
    out = {}
    for part in split(values[PROTOCOL_MAP]):
        name, _, protocol = (x.strip().upper() for x in part.rpartition(":"))
        if not name or protocol not in SECURITY_PROTOCOLS:
            raise ConfigException(
                f"{part!r} is not a protocol of a listener: NAME:PROTOCOL expected, such as CLIENT:PLAINTEXT"
            )
        out[name] = protocol
    return out


def parse_listeners(values: Mapping[str, str], key: str) -> tuple[ListenerAddress, ...]:
    """Return the listeners in the setting ``key``, with their security protocols; none if it is not set.

    A listener that the protocol map does not have is PLAINTEXT.

    Raises:
        ConfigException: malformed entry.
    """
    protocols = parse_protocol_map(values)
    out = []
    for text in split_list(values, key):
        name, host, port = parse_listener(text)
        out.append(ListenerAddress(name, host, port, SECURITY_PROTOCOLS[protocols.get(name, DEFAULT_LISTENER)]))
    return tuple(out)


def security_protocols_by_listener(values: Mapping[str, str]) -> dict[str, str]:
    """Return the security protocols of the listeners in ``listeners``, by name; empty if it is not set.

    Raises:
        ConfigException: malformed setting.
    """
    protocols = parse_protocol_map(values)
    return {x.name: protocols.get(x.name, DEFAULT_LISTENER) for x in parse_listeners(values, LISTENERS)}


def is_same_host(host: str, other_host: str) -> bool:
    """Return True if two hosts are equal or both name the loopback interface."""
    return host == other_host or (host in LOCAL_HOST and other_host in LOCAL_HOST)


def refers_to_other_nodes(
    values: Mapping[str, str], node_id: int, here: tuple[ListenerAddress, ...], host_name: str
) -> bool:
    """Return True if a voter has another id, or a bootstrap server is at none of this node's addresses.

    False if neither is set. ``here``: this node's controller listeners; ``host_name``: the name of this machine.

    Raises:
        ConfigException: malformed entry.
    """
    if QUORUM_VOTERS not in values and BOOTSTRAP_SERVERS not in values:
        return False
    own = (*here, *parse_listeners(values, ADVERTISED_LISTENERS))
    if any(v.id != node_id for v in parse_voters(values)):
        return True
    return not all(
        any(_is_same_address(host, port, x, host_name) for x in own) for host, port in parse_bootstrap_servers(values)
    )


def _is_same_address(host: str, port: int, at: ListenerAddress, host_name: str) -> bool:
    names = {at.host, host_name, *LOCAL_HOST} if at.host in (*ANY_HOST, *LOCAL_HOST) else {at.host}
    return port == at.port and host in names


# ------------------------------------------------------------------ validation


def find_config_problems(values: Mapping[str, str], node_id: int) -> Iterator[ConfigProblem]:
    """Yield (setting, problem) for settings of node id, roles, listeners and quorum that prevent a start (R-239).

    A setting may have several problems. If one cannot be parsed, rules between settings are not checked.
    """
    yield from _node_id_problems(values, node_id)
    readable = True
    for key, read in (
        (QUORUM_VOTERS, parse_voters),
        (BOOTSTRAP_SERVERS, parse_bootstrap_servers),
        (PROTOCOL_MAP, parse_protocol_map),
    ):
        try:
            read(values)
        except ConfigException as error:
            readable = False
            yield key, str(error)
    for key in (LISTENERS, ADVERTISED_LISTENERS):
        try:
            names = [parse_listener(text)[0] for text in split_list(values, key)]
        except ConfigException as error:
            readable = False
            yield key, str(error)
        else:
            if key == ADVERTISED_LISTENERS and len(set(names)) < len(names):
                yield key, f"Each listener must have a different name ({', '.join(names)})"
    if readable:
        yield from _protocol_problems(values)
        yield from _quorum_problems(values, node_id)
        yield from _listener_problems(values)
        yield from _inter_broker_problems(values)


def _node_id_problems(values: Mapping[str, str], node_id: int) -> Iterator[ConfigProblem]:
    if "node.id" in values and "broker.id" in values and values["node.id"] != values["broker.id"]:
        yield "broker.id", f"{values['broker.id']} differs from node.id={values['node.id']}: leave broker.id out"
    if PROCESS_ROLES in values and "node.id" not in values and "broker.id" not in values and node_id < 0:
        yield "node.id", "process.roles needs a node.id"
    if "node.id" not in values and values.get("broker.id", "").startswith("-"):
        yield "broker.id", f"{values['broker.id']} is used as node.id, which must be at least 0"
    unknown = parse_roles(values) - {BROKER_ROLE, CONTROLLER_ROLE}
    if unknown:
        yield (
            PROCESS_ROLES,
            f"Unknown process role {sorted(unknown)[0]!r} (only 'broker' and 'controller' are allowed roles)",
        )


def _protocol_problems(values: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """Yield (setting, problem) for each listener name without a security protocol."""
    mapped = parse_protocol_map(values)
    names = controller_listener_names(values)
    for key in (LISTENERS, ADVERTISED_LISTENERS):
        for at in parse_listeners(values, key):
            if at.name not in mapped:
                yield key, f"listener {at.name} has no protocol: add {at.name}:PLAINTEXT to {PROTOCOL_MAP}"
    if CONTROLLER_ROLE in parse_roles(values):
        return
    # Kafka adds a missing controller listener to the map as it is spelled, but looks it up in upper case.
    written = () if PROTOCOL_MAP in values else split_list(values, CONTROLLER_LISTENER_NAMES)
    for name in (*(x for x in names if x not in mapped), *(x for x in written if x != x.upper())):
        yield PROTOCOL_MAP, f"controller listener {name} has no protocol: add {name.upper()}:PLAINTEXT"


def _quorum_problems(values: Mapping[str, str], node_id: int) -> Iterator[ConfigProblem]:
    roles, voters = parse_roles(values), parse_voters(values)
    ids = [v.id for v in voters]
    if len(set(ids)) != len(ids):
        yield QUORUM_VOTERS, "names a voter twice"
    if CONTROLLER_ROLE in roles:
        if ids and node_id >= 0 and node_id not in ids:
            yield QUORUM_VOTERS, f"names {_format_ids(ids)}, but not this node, {node_id}, which is a controller"
        return
    if node_id in ids:
        yield QUORUM_VOTERS, f"names this node, {node_id}, which is a broker only (process.roles)"
    if not ids and not parse_bootstrap_servers(values):
        yield BOOTSTRAP_SERVERS, "a broker needs the controllers' addresses here, or in controller.quorum.voters"
    if values.get(AUTO_JOIN, "").strip().lower() == "true":
        yield AUTO_JOIN, "is for controllers; this node is a broker only (process.roles)"


def _format_ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _listener_problems(values: Mapping[str, str]) -> Iterator[ConfigProblem]:
    roles, names = parse_roles(values), controller_listener_names(values)
    bound = [x.name for x in parse_listeners(values, LISTENERS)] if LISTENERS in values else [DEFAULT_LISTENER]
    clients = [x for x in bound if x not in names]
    missing = [x for x in names if x not in bound] or [
        x for x in split_list(values, CONTROLLER_LISTENER_NAMES) if x != x.upper()
    ]
    for early in split_list(values, EARLY_START_LISTENERS):
        if early not in bound:
            yield (
                EARLY_START_LISTENERS,
                f"contains listener {early}, but this is not contained in {LISTENERS} or {CONTROLLER_LISTENER_NAMES}",
            )
    wanted = CONTROLLER_LISTENER_NAMES in values or roles == {CONTROLLER_ROLE} or parse_voters(values)
    if CONTROLLER_ROLE in roles and missing and wanted and (LISTENERS in values or roles == {CONTROLLER_ROLE}):
        yield CONTROLLER_LISTENER_NAMES, f"{missing[0]} is not among the listeners ({', '.join(bound)})"
    elif CONTROLLER_ROLE not in roles and len(clients) < len(bound):
        yield LISTENERS, f"has the controllers' listener {names[0]}, and this node is a broker only (process.roles)"
    if roles == {CONTROLLER_ROLE}:
        if clients and LISTENERS in values:
            yield (
                LISTENERS,
                f"{clients[0]} is not in {CONTROLLER_LISTENER_NAMES}, "
                "and this node is a controller only (process.roles)",
            )
        if INTER_BROKER_LISTENER in values and values[INTER_BROKER_LISTENER].strip().upper() in names:
            yield (
                CONTROLLER_LISTENER_NAMES,
                f"must not contain {INTER_BROKER_LISTENER} where {PROCESS_ROLES} is controller",
            )
        return
    if not clients:
        yield LISTENERS, f"leaves no listener to clients: all are in {CONTROLLER_LISTENER_NAMES}"
    yield from _advertised_problems(values, clients)


def _advertised_problems(values: Mapping[str, str], clients: list[str]) -> Iterator[ConfigProblem]:
    advertised = [
        x.name for x in parse_listeners(values, ADVERTISED_LISTENERS) if x.name not in controller_listener_names(values)
    ]
    effective = advertised if ADVERTISED_LISTENERS in values else clients
    if len(set(advertised)) < len(advertised):
        yield ADVERTISED_LISTENERS, "names a listener twice"
    if clients and not effective:
        yield ADVERTISED_LISTENERS, "names no listener for clients"
    if not effective:
        return
    if INTER_BROKER_LISTENER in values:
        key, name = INTER_BROKER_LISTENER, values[INTER_BROKER_LISTENER].strip().upper()
    else:
        own = DEFAULT_LISTENER if DEFAULT_LISTENER in clients or not clients else clients[0]
        key, name = INTER_BROKER_PROTOCOL, values.get(INTER_BROKER_PROTOCOL, own).strip().upper()
    if name not in effective:
        yield key, f"{name} is not among the advertised listeners ({', '.join(effective)})"


def _inter_broker_problems(values: Mapping[str, str]) -> Iterator[ConfigProblem]:
    """Yield (setting, problem) for invalid settings of the inter-broker listener, for any role.

    Source: ``AbstractKafkaConfig.interBrokerListenerNameAndSecurityProtocol`` (apache/kafka 4.3.1).
    """
    if INTER_BROKER_LISTENER in values:
        if INTER_BROKER_PROTOCOL in values:
            yield INTER_BROKER_PROTOCOL, f"cannot be set together with {INTER_BROKER_LISTENER}: remove it"
        name = values[INTER_BROKER_LISTENER].strip().upper()
        protocol = parse_protocol_map(values).get(name, "")
        if not protocol:
            yield INTER_BROKER_LISTENER, f"Listener with name {name} not found in {PROTOCOL_MAP}"
    else:
        name = protocol = values.get(INTER_BROKER_PROTOCOL, DEFAULT_LISTENER).strip().upper()
    named = values.get(INTER_BROKER_PROTOCOL, DEFAULT_LISTENER).strip().upper()
    if named not in SECURITY_PROTOCOLS:
        yield INTER_BROKER_PROTOCOL, f"unknown security protocol: {named} (choose from {', '.join(SECURITY_PROTOCOLS)})"
    if protocol.startswith("SASL"):
        prefixed = f"listener.name.{name.lower()}.{ENABLED_MECHANISMS}"
        enabled = split_list(
            {ENABLED_MECHANISMS: values.get(prefixed, values.get(ENABLED_MECHANISMS, GSSAPI))}, ENABLED_MECHANISMS
        )
        if values.get(INTER_BROKER_MECHANISM, GSSAPI).strip() not in enabled:
            yield INTER_BROKER_MECHANISM, f"must be included in {ENABLED_MECHANISMS} ({', '.join(enabled)})"
