"""Where a node is, and who decides: roles, listeners and voters as Kafka's settings say them, and what cannot be.

Source: ``KafkaConfig.validateValues``, ``QuorumConfig.java``, ``SocketServerConfigs.java`` (apache/kafka 4.3.1).

From KIP-103 (named listeners), KIP-500 (roles), KIP-853 (bootstrap servers).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ottla.controller.java_values import parse_integer, split

ANY_HOST = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
LOCAL_HOST = ("localhost", "127.0.0.1", "::1")
BROKER, CONTROLLER = "broker", "controller"
DEFAULT_LISTENER = "PLAINTEXT"
DEFAULT_CONTROLLER_LISTENER = "CONTROLLER"
PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Security protocols with their numbers in a registration."""
VOTERS = "controller.quorum.voters"
BOOTSTRAP = "controller.quorum.bootstrap.servers"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AUTO_JOIN = "controller.quorum.auto.join.enable"
NAMES = "controller.listener.names"
EARLY = "early.start.listeners"
ROLES = "process.roles"
INTER_BROKER = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
MECHANISMS, GSSAPI = "sasl.enabled.mechanisms", "GSSAPI"
MAP = "listener.security.protocol.map"
LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
JOINED_FILE = "joined.properties"
"""What a node that joined a cluster keeps beside its metadata log: where the controllers were."""

_HOST_PORT = re.compile(r"\[?([0-9a-zA-Z\-%._:]*)]?:0*([0-9]{1,5})")
"""``SocketServerConfigs.URI_PARSE_REGEXP``."""

Refusal = tuple[str, str]
"""A setting, and why a node cannot keep to it."""


class BadConfig(Exception):
    """A setting that cannot be; the message is one line for the user."""


class Address(NamedTuple):
    """A listener, and where it is or is said to be; port 0: any that is free."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class Voter(NamedTuple):
    """One of ``controller.quorum.voters``."""

    id: int
    host: str
    port: int


def parse_host_port(text: str) -> tuple[str, int]:
    """``HOST:PORT`` -> (host, port); an IPv6 address stands in brackets.

    Raises:
        BadConfig: not such an address.
    """
    found = _HOST_PORT.fullmatch(text.strip())
    if found is None or int(found[2]) > 65535:
        raise BadConfig(f"{text.strip()!r} is no address: write HOST:PORT, or NAME://HOST:PORT")
    return found[1], int(found[2])


def parse_listener(text: str) -> tuple[str, str, int]:
    """``NAME://HOST:PORT`` -> (name, host, port).

    Raises:
        BadConfig: not such an address.
    """
    name, separator, address = text.strip().partition("://")
    host, port = parse_host_port(address if separator else text)
    return (name.upper() if separator else DEFAULT_LISTENER), host, port


def parse_voter(text: str) -> Voter:
    """``ID@HOST:PORT``.

    Raises:
        BadConfig: not such a voter.
    """
    number, separator, address = text.strip().partition("@")
    try:
        voter_id = parse_integer(number if separator else "", 32)
    except ValueError:
        raise BadConfig(f"{text.strip()!r} is no voter: write ID@HOST:PORT") from None
    return Voter(voter_id, *parse_host_port(address))


def listed(values: Mapping[str, str], key: str) -> list[str]:
    """The entries of a list."""
    return [x.strip() for x in values.get(key, "").split(",") if x.strip()]


def controller_names(values: Mapping[str, str]) -> tuple[str, ...]:
    """``controller.listener.names``; the first is where peers are spoken to."""
    return tuple(x.upper() for x in listed(values, NAMES)) or (DEFAULT_CONTROLLER_LISTENER,)


def roles_of(values: Mapping[str, str]) -> frozenset[str]:
    """``process.roles``; both where nothing is said."""
    return frozenset(x.lower() for x in listed(values, ROLES)) or frozenset((BROKER, CONTROLLER))


def voters_of(values: Mapping[str, str]) -> tuple[Voter, ...]:
    """``controller.quorum.voters``.

    Raises:
        BadConfig: one cannot be read.
    """
    return tuple(parse_voter(x) for x in listed(values, VOTERS))


def bootstrap_of(values: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """``controller.quorum.bootstrap.servers``; a name before ``://`` is ignored, as by ``Utils.getHost``.

    Raises:
        BadConfig: one cannot be read.
    """
    return tuple(parse_host_port(x.rpartition("://")[2]) for x in listed(values, BOOTSTRAP))


def protocols_of(values: Mapping[str, str]) -> dict[str, str]:
    """Security protocol by listener name. Controllers need no entry where none is written and all is plain text.

    Raises:
        BadConfig: an entry that cannot be read.
    """
    out = {name: name for name in PROTOCOLS}
    if MAP not in values:
        if not any(x.upper().startswith(("SSL:", "SASL_")) for x in listed(values, LISTENERS)):
            out.update((name, DEFAULT_LISTENER) for name in controller_names(values) if name not in out)
        return out
    out = {}
    for part in split(values[MAP]):
        name, _, protocol = (x.strip().upper() for x in part.rpartition(":"))
        if not name or protocol not in PROTOCOLS:
            raise BadConfig(f"{part!r} maps no listener to a protocol: write NAME:PLAINTEXT")
        out[name] = protocol
    return out


def addresses_of(values: Mapping[str, str], key: str) -> tuple[Address, ...]:
    """The listeners that a setting names.

    Raises:
        BadConfig: one cannot be read.
    """
    protocols = protocols_of(values)
    out = []
    for text in listed(values, key):
        name, host, port = parse_listener(text)
        out.append(Address(name, host, port, PROTOCOLS[protocols.get(name, DEFAULT_LISTENER)]))
    return tuple(out)


def protocols_by_listener(values: Mapping[str, str]) -> dict[str, str]:
    """Security protocols of the listeners a node has, by their names.

    Raises:
        BadConfig: one cannot be read.
    """
    protocols = protocols_of(values)
    return {x.name: protocols.get(x.name, DEFAULT_LISTENER) for x in addresses_of(values, LISTENERS)}


def is_same_host(one: str, other: str) -> bool:
    """Whether two hosts are written alike, or both stand for this machine alone."""
    return one == other or (one in LOCAL_HOST and other in LOCAL_HOST)


def names_others(values: Mapping[str, str], node_id: int, here: tuple[Address, ...], host_name: str) -> bool:
    """Whether the settings send this node to controllers of other nodes. ``here``: its own controller listeners.

    Raises:
        BadConfig: a voter or server cannot be read.
    """
    if VOTERS not in values and BOOTSTRAP not in values:
        return False
    own = (*here, *addresses_of(values, ADVERTISED))
    if any(v.id != node_id for v in voters_of(values)):
        return True
    return not all(any(_same(host, port, x, host_name) for x in own) for host, port in bootstrap_of(values))


def _same(host: str, port: int, at: Address, host_name: str) -> bool:
    names = {at.host, host_name, *LOCAL_HOST} if at.host in (*ANY_HOST, *LOCAL_HOST) else {at.host}
    return port == at.port and host in names


# ------------------------------------------------------------------ what cannot be


def refusals(values: Mapping[str, str], node_id: int) -> Iterator[Refusal]:
    """What a node cannot start with, by setting: the rules of ``KafkaConfig.validateValues`` (R239) among them."""
    yield from _ids(values, node_id)
    readable = True
    for key, read in ((VOTERS, voters_of), (BOOTSTRAP, bootstrap_of), (MAP, protocols_of)):
        try:
            read(values)
        except BadConfig as error:
            readable = False
            yield key, str(error)
    for key in (LISTENERS, ADVERTISED):
        try:
            names = [parse_listener(text)[0] for text in listed(values, key)]
        except BadConfig as error:
            readable = False
            yield key, str(error)
        else:
            if key == ADVERTISED and len(set(names)) < len(names):
                yield key, f"Each listener must have a different name ({', '.join(names)})"
    if readable:
        yield from _served(values)
        yield from _quorum(values, node_id)
        yield from _listeners(values)
        yield from _inter_broker_protocol(values)


def _ids(values: Mapping[str, str], node_id: int) -> Iterator[Refusal]:
    if "node.id" in values and "broker.id" in values and values["node.id"] != values["broker.id"]:
        yield "broker.id", f"says {values['broker.id']}, node.id says {values['node.id']}: leave broker.id out"
    if ROLES in values and "node.id" not in values and "broker.id" not in values and node_id < 0:
        yield "node.id", "process.roles needs a node.id"
    if "node.id" not in values and values.get("broker.id", "").startswith("-"):
        yield "broker.id", f"is {values['broker.id']} and stands for node.id, which must be at least 0"
    unknown = roles_of(values) - {BROKER, CONTROLLER}
    if unknown:
        yield ROLES, f"{sorted(unknown)[0]!r} is no role: write broker, controller or broker,controller"


def _served(values: Mapping[str, str]) -> Iterator[Refusal]:
    """Listener names need a protocol."""
    mapped = protocols_of(values)
    names = controller_names(values)
    for key in (LISTENERS, ADVERTISED):
        for at in addresses_of(values, key):
            if at.name not in mapped:
                yield key, f"listener {at.name} has no protocol: add {at.name}:PLAINTEXT to {MAP}"
    if CONTROLLER in roles_of(values):
        return
    # Kafka maps a controller listener that has no entry by its name as it is written, and looks for it in upper case.
    written = () if MAP in values else listed(values, NAMES)
    for name in (*(x for x in names if x not in mapped), *(x for x in written if x != x.upper())):
        yield MAP, f"controller listener {name} has no protocol: add {name.upper()}:PLAINTEXT"


def _quorum(values: Mapping[str, str], node_id: int) -> Iterator[Refusal]:
    roles, voters = roles_of(values), voters_of(values)
    ids = [v.id for v in voters]
    if len(set(ids)) != len(ids):
        yield VOTERS, "names a voter twice"
    if CONTROLLER in roles:
        if ids and node_id >= 0 and node_id not in ids:
            yield VOTERS, f"names {_told(ids)}, but not this node, {node_id}, which is a controller"
        return
    if node_id in ids:
        yield VOTERS, f"names this node, {node_id}, which is a broker only (process.roles)"
    if not ids and not bootstrap_of(values):
        yield BOOTSTRAP, "a broker needs the controllers' addresses here, or in controller.quorum.voters"
    if values.get(AUTO_JOIN, "").strip().lower() == "true":
        yield AUTO_JOIN, "is for controllers; this node is a broker only (process.roles)"


def _told(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _listeners(values: Mapping[str, str]) -> Iterator[Refusal]:
    roles, names = roles_of(values), controller_names(values)
    bound = [x.name for x in addresses_of(values, LISTENERS)] if LISTENERS in values else [DEFAULT_LISTENER]
    clients = [x for x in bound if x not in names]
    missing = [x for x in names if x not in bound] or [x for x in listed(values, NAMES) if x != x.upper()]
    for early in listed(values, EARLY):
        if early not in bound:
            yield EARLY, f"contains listener {early}, but this is not contained in {LISTENERS} or {NAMES}"
    wanted = NAMES in values or roles == {CONTROLLER} or voters_of(values)
    if CONTROLLER in roles and missing and wanted and (LISTENERS in values or roles == {CONTROLLER}):
        yield NAMES, f"{missing[0]} is not among the listeners ({', '.join(bound)})"
    elif CONTROLLER not in roles and len(clients) < len(bound):
        yield LISTENERS, f"has the controllers' listener {names[0]}, and this node is a broker only (process.roles)"
    if roles == {CONTROLLER}:
        if clients and LISTENERS in values:
            yield LISTENERS, f"{clients[0]} is not in {NAMES}, and this node is a controller only (process.roles)"
        if INTER_BROKER in values and values[INTER_BROKER].strip().upper() in names:
            yield NAMES, f"must not contain {INTER_BROKER} where {ROLES} is controller"
        return
    if not clients:
        yield LISTENERS, f"leaves no listener to clients: all are in {NAMES}"
    yield from _between_brokers(values, clients)


def _between_brokers(values: Mapping[str, str], clients: list[str]) -> Iterator[Refusal]:
    advertised = [x.name for x in addresses_of(values, ADVERTISED) if x.name not in controller_names(values)]
    told = advertised if ADVERTISED in values else clients
    if len(set(advertised)) < len(advertised):
        yield ADVERTISED, "names a listener twice"
    if clients and not told:
        yield ADVERTISED, "names no listener for clients"
    if not told:
        return
    if INTER_BROKER in values:
        key, name = INTER_BROKER, values[INTER_BROKER].strip().upper()
    else:
        own = DEFAULT_LISTENER if DEFAULT_LISTENER in clients or not clients else clients[0]
        key, name = INTER_BROKER_PROTOCOL, values.get(INTER_BROKER_PROTOCOL, own).strip().upper()
    if name not in told:
        yield key, f"{name} is not among the advertised listeners ({', '.join(told)})"


def _inter_broker_protocol(values: Mapping[str, str]) -> Iterator[Refusal]:
    """Generate what is wrong with the listener between brokers, whichever roles the node has.

    Source: ``AbstractKafkaConfig.interBrokerListenerNameAndSecurityProtocol`` (apache/kafka 4.3.1).
    """
    if INTER_BROKER in values:
        if INTER_BROKER_PROTOCOL in values:
            yield INTER_BROKER_PROTOCOL, f"cannot stand beside {INTER_BROKER}: leave it out"
        name = values[INTER_BROKER].strip().upper()
        protocol = protocols_of(values).get(name, "")
        if not protocol:
            yield INTER_BROKER, f"Listener with name {name} not found in {MAP}"
    else:
        name = protocol = values.get(INTER_BROKER_PROTOCOL, DEFAULT_LISTENER).strip().upper()
    named = values.get(INTER_BROKER_PROTOCOL, DEFAULT_LISTENER).strip().upper()
    if named not in PROTOCOLS:
        yield INTER_BROKER_PROTOCOL, f"{named} is none: {', '.join(PROTOCOLS)}"
    if protocol.startswith("SASL"):
        prefixed = f"listener.name.{name.lower()}.{MECHANISMS}"
        enabled = listed({MECHANISMS: values.get(prefixed, values.get(MECHANISMS, GSSAPI))}, MECHANISMS)
        if values.get(INTER_BROKER_MECHANISM, GSSAPI).strip() not in enabled:
            yield INTER_BROKER_MECHANISM, f"must be included in {MECHANISMS} ({', '.join(enabled)})"
