"""Checks of a broker's configuration for common mistakes, for ``ottla doctor`` and commands that read such settings.

``ottla serve``, ``ottla format`` and others apply only `unsupported_settings`.

The file is parsed as by Kafka and checked for a node of Ottla; most findings would also prevent a Kafka broker from
starting, or its clients from connecting to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import NamedTuple

from ottla.broker.config import listener_config
from ottla.broker.config.listener_config import ANY_HOST, LOCAL_HOST, ConfigException, parse_listener
from ottla.broker.config.node_config import NodeConfig, closest_match
from ottla.controller.config import broker_config_validation
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import broker_key, canonical_values, check_value
from ottla.controller.config.java_values import parse_integer
from ottla.log.java_properties import Property, parse, trim

WRONG, DOUBTFUL = "wrong", "doubtful"
_OF_ZOOKEEPER = (
    "zookeeper.",
    "broker.id.generation.enable",
    "inter.broker.protocol.version",
    "log.message.format.version",
)


class ConfigFinding(NamedTuple):
    """Finding about a setting.

    Attributes:
        lineno: line of the setting in the file, from 1; 0 if it is not in the file.
        key: name of the setting.
        severity: `WRONG` or `DOUBTFUL`.
        text: message for the user.
    """

    lineno: int
    key: str
    severity: str
    text: str


def parse_settings(raw: bytes) -> list[Property]:
    """Return the settings of a properties file with their line numbers.

    Raises:
        MalformedProperties: the file has a Unicode escape without four hexadecimal digits.
    """
    return [Property(number, key, trim(value)) for number, key, value in parse(raw)]


class _SettingsFile:
    """Settings of a broker's properties file, by name; of a name that occurs twice, the last one."""

    def __init__(self, lines: list[Property]) -> None:
        self.properties = {line.key: line for line in lines}

    def get(self, key: str) -> str:
        """Return the value of broker setting ``key`` in the file, else its default, else an empty text."""
        line = self.properties.get(key)
        return line.value if line is not None else BROKER_KEYS[key].default or ""

    def configured(self, key: str) -> str:
        """Return the value of a setting in the file, else an empty text; defaults are ignored."""
        line = self.properties.get(key)
        return line.value if line is not None else ""

    def number(self, key: str) -> int:
        """Return the value or default of a numeric setting; 0 without both, or if invalid (another rule reports it)."""
        try:
            return int(self.get(key))
        except ValueError:
            return 0

    def listeners(self, key: str) -> Iterator[tuple[str, str, int]]:
        """Yield name, host and port of each listener in the value of setting ``key``; malformed ones are skipped."""
        for part in self.configured(key).split(","):
            if part.strip():
                try:
                    yield parse_listener(part)
                except ConfigException:
                    continue

    def finding(self, key: str, severity: str, text: str) -> ConfigFinding:
        """Return a finding about setting ``key``, with its line number, or 0 if it is not in the file."""
        line = self.properties.get(key)
        return ConfigFinding(line.number if line is not None else 0, key, severity, text)


def _unknown_and_bad_values(c: _SettingsFile) -> Iterator[ConfigFinding]:
    for line in c.properties.values():
        if line.key.startswith("listener.name."):
            continue
        known = broker_key(line.key)
        if known is None:
            if not line.key.startswith(_OF_ZOOKEEPER):
                near = closest_match(line.key, BROKER_KEYS)
                text = "no broker of Kafka 4 has this setting"
                yield ConfigFinding(line.number, line.key, DOUBTFUL, text + (f"; did you mean {near}?" if near else ""))
            continue
        wrong = check_value(known, line.value)
        if wrong is not None:
            yield ConfigFinding(line.number, line.key, WRONG, f"{wrong}{_about_units(line.value, known.type)}")


def _about_units(value: str, kind: str) -> str:
    units = value.strip().lower().lstrip("0123456789.")
    if kind in ("INT", "LONG", "SHORT") and units and len(units) < len(value.strip()):
        return f". Write a plain number: Kafka does not support units such as {units!r}"
    return ""


def _zookeeper(c: _SettingsFile) -> Iterator[ConfigFinding]:
    for line in c.properties.values():
        if line.key.startswith(_OF_ZOOKEEPER):
            text = "is a setting of ZooKeeper mode, which Kafka 4 does not support; remove it"
            yield ConfigFinding(line.number, line.key, WRONG if line.key == "zookeeper.connect" else DOUBTFUL, text)


def _advertised_listeners(c: _SettingsFile) -> Iterator[ConfigFinding]:
    """Yield findings about ``advertised.listeners``: an unknown listener, or an address that clients cannot reach."""
    bound = {name: host for name, host, _ in c.listeners("listeners")}
    values = {line.key: line.value for line in c.properties.values()}
    is_controller = listener_config.parse_roles(values) == {listener_config.CONTROLLER_ROLE}
    for name, host, _ in c.listeners("advertised.listeners"):
        if host in ANY_HOST:
            text = f"advertises {host or 'no host'}, which is no address; set one that clients can reach, or remove it"
            yield c.finding("advertised.listeners", WRONG, text)
        elif host in LOCAL_HOST and bound.get(name, "") in ANY_HOST and bound:
            text = (
                f"advertises {host}, though {name} listens on all addresses: clients on other machines cannot connect"
            )
            yield c.finding("advertised.listeners", DOUBTFUL, text)
        if bound and not is_controller and name not in (*bound, *listener_config.controller_listener_names(values)):
            yield c.finding("advertised.listeners", WRONG, f"{name} is not among the listeners ({', '.join(bound)})")


def _listeners_clash(c: _SettingsFile) -> Iterator[ConfigFinding]:
    seen: dict[object, str] = {}
    hosts: dict[int, str] = {}
    for name, host, port in c.listeners("listeners"):
        if name in seen.values():
            yield c.finding("listeners", WRONG, f"two listeners are named {name}")
        if port and port in seen and not _is_other_stack(hosts[port], host):
            yield c.finding("listeners", WRONG, f"{seen[port]} and {name} both use port {port}")
        seen[port or name] = name
        hosts[port] = host


def _is_other_stack(host: str, other: str) -> bool:
    """Return True if one host is an IPv4 address and the other an IPv6 address, which may share a port.

    False if one of them is a host name.
    """
    try:
        return ip_address(host).version != ip_address(other).version
    except ValueError:
        return False


def _dependent_settings(c: _SettingsFile) -> Iterator[ConfigFinding]:
    """Yield a finding for combinations of settings that are valid by themselves (``KafkaConfig.validateValues``)."""
    valid = {}
    for line in c.properties.values():
        known = broker_key(line.key)
        if known is not None and check_value(known, line.value) is None:
            valid[line.key] = line.value
    directories = (
        ()
        if "log.dirs" in valid or "log.dir" in valid
        else c.configured(broker_config_validation.CORDONED_LOG_DIRS).split(",")
    )
    try:
        broker_config_validation.check_combinations(valid, directories)
        broker_config_validation.check_classes(valid)
    except broker_config_validation.InvalidBrokerConfig as error:
        text = str(error)
        named = [key for key in c.properties if key in text]
        yield c.finding(max(named, key=len) if named else next(iter(c.properties)), WRONG, text)


def _roles_listeners_and_voters(c: _SettingsFile) -> Iterator[ConfigFinding]:
    """Yield findings about roles, listeners and voters that contradict each other, and about listener security."""
    values = canonical_values({line.key: line.value for line in c.properties.values()})
    for key, text in listener_config.find_config_problems(values, _node_id(c, -1)):
        yield c.finding(key, WRONG, text)
    yield from _listener_security(c, values)


def _listener_security(c: _SettingsFile, values: dict[str, str]) -> Iterator[ConfigFinding]:
    """Yield findings about TLS and SASL settings of listeners, and about credentials for connections between nodes."""
    try:
        served = listener_config.security_protocols_by_listener(values)
    except ConfigException:
        return  # reported above
    if any(protocol != listener_config.DEFAULT_LISTENER for protocol in served.values()):
        # lazy: 16.6 ms, 437 kB
        from ottla.broker.interbroker import credentials
        from ottla.broker.security.authn import listener_security

        for key, text in (
            *listener_security.find_listener_problems(values, served),
            *credentials.find_credential_problems(_node_config(c, values)),
        ):
            yield c.finding(key, WRONG, text)


def _node_config(c: _SettingsFile, values: dict[str, str]) -> NodeConfig:
    return NodeConfig(values, node_id=_node_id(c, 1))


def _node_id(c: _SettingsFile, default: int) -> int:
    """Return ``node.id``, else ``broker.id``, of the settings; ``default`` if it is not set or invalid."""
    for key in ("node.id", "broker.id"):
        if c.configured(key):
            try:
                return parse_integer(c.configured(key), 32)
            except ValueError:
                return default
    return default


def _has_no_other_controllers(c: _SettingsFile) -> bool:
    """Return True if the node is the only controller by its settings; False also if the settings are invalid."""
    values = {line.key: line.value for line in c.properties.values()}
    try:
        return NodeConfig(values, node_id=c.number("node.id")).is_standalone
    except ConfigException:
        return False


def _replication(c: _SettingsFile) -> Iterator[ConfigFinding]:
    """For a node that is the only controller, yield findings about replication factors and ``min.insync.replicas``."""
    if not _has_no_other_controllers(c):
        return
    for key in (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "share.coordinator.state.topic.replication.factor",
    ):
        if key in c.properties and c.number(key) > 1:
            yield c.finding(key, WRONG, f"{c.get(key)} replicas need as many nodes; there is one: set 1")
    least = c.number("min.insync.replicas")
    if "min.insync.replicas" in c.properties and least > max(c.number("default.replication.factor"), 1):
        text = (
            f"requires {least} in-sync replicas; topics have {c.get('default.replication.factor')} replicas by default"
        )
        yield c.finding("min.insync.replicas", DOUBTFUL, text)


def _security(c: _SettingsFile) -> Iterator[ConfigFinding]:
    named = c.configured("authorizer.class.name").strip()
    if named not in ("", listener_config.STANDARD_AUTHORIZER):
        text = f"{named} is not supported: set {listener_config.STANDARD_AUTHORIZER}, or remove it: no ACLs"
        yield c.finding("authorizer.class.name", WRONG, text)
    key = "remote.log.storage.system.enable"
    prefix = c.get("remote.log.storage.manager.impl.prefix")
    if c.get(key).lower() == "true" and f"{prefix}url" not in c.properties:
        yield c.finding(key, WRONG, f"the remote store has no URL: set {prefix}url")


def _sizes(c: _SettingsFile) -> Iterator[ConfigFinding]:
    largest = c.number("message.max.bytes")
    for key, why in (
        ("socket.request.max.bytes", "a request with the largest message closes its connection"),
        ("fetch.max.bytes", "the largest message is larger than a response"),
        ("log.segment.bytes", "the largest message does not fit a segment"),
    ):
        if {key, "message.max.bytes"} & set(c.properties) and 0 < c.number(key) < largest:
            where = "message.max.bytes" if "message.max.bytes" in c.properties else key
            yield c.finding(where, DOUBTFUL, f"message.max.bytes is {largest}, {key} only {c.get(key)}: {why}")


def _directories(c: _SettingsFile) -> Iterator[ConfigFinding]:
    key = "log.dirs" if "log.dirs" in c.properties else "log.dir"
    directories = [x.strip() for x in c.configured(key).split(",") if x.strip()]
    if any(x == "/tmp" or x.startswith("/tmp/") for x in directories):  # noqa: S108 - that is what is looked for
        yield c.finding(key, DOUBTFUL, "data under /tmp is lost when the machine restarts")
    for twice in sorted({x for x in directories if directories.count(x) > 1}):
        yield c.finding(key, WRONG, f"lists {twice} twice")


def _retention(c: _SettingsFile) -> Iterator[ConfigFinding]:
    order = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    named = [key for key in order if key in c.properties]
    for key in named[1:]:
        yield c.finding(key, DOUBTFUL, f"has no effect: {named[0]} takes precedence")


RULES: tuple[Callable[[_SettingsFile], Iterator[ConfigFinding]], ...] = (
    _unknown_and_bad_values,
    _zookeeper,
    _advertised_listeners,
    _listeners_clash,
    _roles_listeners_and_voters,
    _dependent_settings,
    _replication,
    _security,
    _sizes,
    _directories,
    _retention,
)


def diagnose(lines: list[Property]) -> list[ConfigFinding]:
    """Return all findings about a broker's settings, ordered by line number; no files are read."""
    config = _SettingsFile(lines)
    return sorted({finding for rule in RULES for finding in rule(config)})


def unsupported_settings(values: Mapping[str, str]) -> list[str]:
    """Return the problems of listeners, roles, voters, authorizer and remote store that prevent a node from starting.

    Each is a text ``SETTING: MESSAGE``.
    """
    config = _SettingsFile([Property(0, key, value) for key, value in values.items()])
    rules = (_advertised_listeners, _listeners_clash, _roles_listeners_and_voters, _security)
    return [f"{f.key}: {f.text}" for rule in rules for f in rule(config) if f.severity == WRONG]
