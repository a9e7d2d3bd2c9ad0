"""Validation of a broker's configuration, as Kafka does at start: single values and combinations.

Source: ``KafkaConfig.validateValues``, ``GroupCoordinatorConfig.java``, ``ShareGroupConfig.java``,
``ShareCoordinatorConfig.java`` (apache/kafka 4.3.1). The rules on listeners, roles and voters are those of
`ottla.broker.config.listener_config`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping

from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import OWN_BROKER_KEYS, broker_key, synonyms_of
from ottla.controller.config.config_values import ConfigValue, check_value, parse
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS, QUOTA_KEYS
from ottla.controller.config.java_values import parse_integer, trim
from ottla.controller.config.pluggable_classes import CONSUMER_ASSIGNORS, SHARE_ASSIGNORS, STARTUP_CLASSES_BY_KEY

MAX_CONNECTIONS_PER_IP = "max.connections.per.ip"
MAX_CONNECTIONS_PER_IP_OVERRIDES = f"{MAX_CONNECTIONS_PER_IP}.overrides"
CORDONED_LOG_DIRS = "cordoned.log.dirs"
ALL_DIRS = "*"
_CODECS = range(5)
"""Ids of ``CompressionType``."""
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_MIB = 1 << 20
_INTERVALS = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
_RECORDING_LEVELS = ("INFO", "DEBUG", "TRACE")


class InvalidBrokerConfig(Exception):
    """Setting, or combination of settings, that Kafka rejects; the message is mostly Kafka's."""


class BrokerConfigValues:
    """Typed view of a broker's configuration: configured values, else Kafka's defaults."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = values

    def get(self, name: str) -> ConfigValue | None:
        """Return the typed value of a setting, or of its default; None if it has neither.

        ``name`` must be a known setting.

        Raises:
            ValueError: the value is not of the setting's type.
        """
        key = broker_key(name)
        assert key is not None, name
        text = self.values.get(name, key.default)
        return None if text is None or text == "<required>" else parse(key, text)

    def number(self, name: str) -> int:
        """Return the value of a setting of type INT, LONG or SHORT that has a default."""
        value = self.get(name)
        assert isinstance(value, int), name
        return value

    def elements(self, name: str) -> list[str]:
        """Return the elements of a setting of type LIST; an unset one is empty."""
        value = self.get(name)
        return value if isinstance(value, list) else []

    def text(self, name: str) -> str:
        """Return the value of a setting of type STRING; an unset one is empty."""
        value = self.get(name)
        return "" if value is None else str(value)

    def milliseconds(self, name: str) -> int:
        """Return a time in ms, from the setting ``name`` or its synonyms in minutes or hours, by precedence.

        A negative time, such as -1 hour, is -1: no limit.
        """
        for other, unit in synonyms_of(name):
            value = self.get(other)
            if isinstance(value, int):
                return max(value * unit, -1)
        raise AssertionError(name)


def check_values(values: Mapping[str, str]) -> None:
    """Check each value of a broker's known settings without a listener prefix by itself, in Kafka's order.

    Raises:
        InvalidBrokerConfig: a value is invalid.
    """
    for name in (*BROKER_KEYS, *INTERNAL_BROKER_KEYS, *QUOTA_KEYS, *OWN_BROKER_KEYS):
        if name in values:
            key = broker_key(name)
            wrong = None if key is None else check_value(key, values[name])
            if wrong is not None:
                raise InvalidBrokerConfig(wrong)


def check_listener_values(values: Mapping[str, str], listeners: Collection[str]) -> None:
    """Check each value with the prefix of a listener, such as ``listener.name.X.ssl.keystore.type``, by itself.

    Settings of other listeners and unknown settings are not checked.

    Args:
        values: All settings.
        listeners: Names of the broker's listeners, in lower case.

    Raises:
        InvalidBrokerConfig: a value is invalid.
    """
    for name in values:
        key = broker_key(name) if name.startswith(tuple(f"listener.name.{x}." for x in listeners)) else None
        wrong = None if key is None else check_value(key, values[name])
        if wrong is not None:
            raise InvalidBrokerConfig(wrong)


def check_combinations(values: Mapping[str, str], log_dirs: Collection[str] = ()) -> None:
    """Check the combination of settings each of which is valid by itself.

    Args:
        values: Configured settings; the others have Kafka's defaults.
        log_dirs: The log directories; empty to read them from ``values``.

    Raises:
        InvalidBrokerConfig: a rule is violated.
    """
    settings = BrokerConfigValues(values)
    for wrong in _combination_errors(settings, log_dirs):
        raise InvalidBrokerConfig(wrong)


def check_classes(values: Mapping[str, str]) -> None:
    """Check the class names and enum constants that Kafka resolves at start, in settings of types other than CLASS.

    Raises:
        InvalidBrokerConfig: no such class or name, or a duplicate assignor.
    """
    settings = BrokerConfigValues(values)
    for name, known in STARTUP_CLASSES_BY_KEY.items():
        value = settings.get(name)
        for named in value if isinstance(value, list) else [str(value)] if value else []:
            if named not in known:
                raise InvalidBrokerConfig(f"Class {named} cannot be found: {name}")
    level = settings.text("metrics.recording.level")
    if level.upper() not in _RECORDING_LEVELS:
        raise InvalidBrokerConfig(f"No enum constant {level.upper()}: metrics.recording.level")
    assignors = settings.elements("group.consumer.assignors")
    names = [CONSUMER_ASSIGNORS[x] for x in assignors]
    if len(set(names)) < len(names):
        raise InvalidBrokerConfig(f"Duplicate assignor: group.consumer.assignors={','.join(assignors)}")


def _combination_errors(settings: BrokerConfigValues, log_dirs: Collection[str]) -> Iterator[str]:
    """Yield Kafka's messages of the violated rules, in the order of Kafka's checks."""
    yield from _groups(settings)
    yield from _share_groups(settings)
    for name in ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec"):
        if settings.number(name) not in _CODECS:
            yield f"Unknown compression type id: {settings.number(name)}"
    if "classic" not in settings.elements("group.coordinator.rebalance.protocols"):
        yield "Disabling the 'classic' protocol is not supported."
    yield from _logs(settings)
    yield from _replication(settings)
    yield from _cordoned(settings, log_dirs)
    yield from _connections(settings)


def _required(*rules: tuple[bool, str]) -> Iterator[str]:
    """Yield the messages, in the form of Scala's ``require``, of those rules (condition, message) that do not hold."""
    return (f"requirement failed: {text}" for holds, text in rules if not holds)


def _logs(settings: BrokerConfigValues) -> Iterator[str]:
    retention_ms = settings.milliseconds("log.retention.ms")
    yield from _required(
        (settings.milliseconds("log.roll.ms") >= 1, "log.roll.ms must be greater than or equal to 1"),
        (settings.milliseconds("log.roll.jitter.ms") >= 0, "log.roll.jitter.ms must be greater than or equal to 0"),
        (retention_ms != 0, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    )
    threads = settings.number("log.cleaner.threads")
    if threads == 0:
        yield "/ by zero"
        return
    buffer_bytes = settings.number("log.cleaner.dedupe.buffer.size")
    per_thread = -(-buffer_bytes // threads) if buffer_bytes < 0 else buffer_bytes // threads
    text = "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    yield from _required((per_thread > _MIB, text))


def _replication(settings: BrokerConfigValues) -> Iterator[str]:
    wait_ms = settings.number("replica.fetch.wait.max.ms")
    socket, lag = "replica.socket.timeout.ms", "replica.lag.time.max.ms"
    yield from _required(
        (
            wait_ms <= settings.number(socket),
            f"{socket} should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts",
        ),
        (
            wait_ms <= settings.number(lag),
            "replica.fetch.wait.max.ms should always be less than or equal to "
            f"{lag} to prevent frequent changes in ISR",
        ),
    )


def _cordoned(settings: BrokerConfigValues, log_dirs: Collection[str]) -> Iterator[str]:
    cordoned = settings.elements(CORDONED_LOG_DIRS)
    if settings.elements("process.roles") == ["controller"]:
        return
    if ALL_DIRS in cordoned:
        text = f"When {CORDONED_LOG_DIRS} is set to {ALL_DIRS}, it must not contain other values"
        yield from _required((len(cordoned) == 1, text))
        return
    known = log_dirs or settings.elements("log.dirs") or settings.elements("log.dir")
    unknown = [x for x in cordoned if x not in known]
    text = f"All entries in {CORDONED_LOG_DIRS} must be present in log.dirs or log.dir."
    yield from _required((not unknown, f"{text} Missing entries : {', '.join(unknown)}"))


def _connections(settings: BrokerConfigValues) -> Iterator[str]:
    queued, most = settings.number("queued.max.request.bytes"), settings.number("socket.request.max.bytes")
    text = "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    yield from _required((queued <= 0 or queued >= most, text))
    try:
        overrides = connection_overrides(settings.text(MAX_CONNECTIONS_PER_IP_OVERRIDES))
    except ValueError as error:
        yield str(error)
        return
    if settings.number(MAX_CONNECTIONS_PER_IP) == 0:
        text = (
            f"{MAX_CONNECTIONS_PER_IP} can be set to zero only if {MAX_CONNECTIONS_PER_IP_OVERRIDES} property is set."
        )
        yield from _required((bool(overrides), text))
    invalid = [x for x in overrides if not _HOST.fullmatch(x)]
    if invalid:
        yield f"{MAX_CONNECTIONS_PER_IP_OVERRIDES} contains invalid addresses : {','.join(invalid)}"
    delay_ms = settings.number("connection.failed.authentication.delay.ms")
    idle_ms = settings.number("connections.max.idle.ms")
    text = (
        f"connection.failed.authentication.delay.ms={delay_ms} should always be less than "
        f"connections.max.idle.ms={idle_ms} to prevent failed authentication responses from timing out"
    )
    yield from _required((idle_ms < 0 or delay_ms < idle_ms, text))


def connection_overrides(text: str) -> dict[str, int]:
    """Return the limits of ``max.connections.per.ip.overrides`` by host, as ``Csv.parseCsvMap`` reads them.

    Raises:
        ValueError: an element is not HOST:NUMBER; the message is Kafka's.
    """
    out = {}
    parts = re.split(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*", text) if text else []
    while parts and not parts[-1]:
        parts.pop()
    for part in parts:
        host, separator, number = part.rpartition(":")
        if not separator:
            why = f"begin 0, end -1, length {len(part)}"
            raise ValueError(f"Error parsing configuration property '{MAX_CONNECTIONS_PER_IP_OVERRIDES}': {why}")
        try:
            out[trim(host)] = parse_integer(trim(number), 32)
        except ValueError:
            raise ValueError(f'For input string: "{trim(number)}"') from None
    return out


# ------------------------------------------------------------------ groups


def _groups(settings: BrokerConfigValues) -> Iterator[str]:
    """Yield Kafka's error messages for the violated rules of ``GroupCoordinatorConfig``."""
    for name, known in (("group.consumer.assignors", CONSUMER_ASSIGNORS), ("group.share.assignors", SHARE_ASSIGNORS)):
        for element in settings.elements(name):
            if element not in known:
                yield f"Class {element} cannot be found"
    for kind in ("consumer", "share", "streams"):
        heartbeat, session, assignment = (f"{kind}.{x}" for x in _INTERVALS)
        yield from _bounded(settings, heartbeat)
        yield from _bounded(settings, session)
        if settings.number(f"group.{heartbeat}") >= settings.number(f"group.{session}"):
            yield f"group.{heartbeat} must be less than group.{session}"
        share_assignors = settings.elements("group.share.assignors") if kind == "share" else [""]
        if len(share_assignors) != 1:
            yield f"group.share.assignors must contain exactly one assignor, but found {len(share_assignors)}"
        yield from _bounded(settings, assignment)
    standbys, most = "group.streams.num.standby.replicas", "group.streams.max.standby.replicas"
    if settings.number(standbys) > settings.number(most):
        yield f"{standbys} must be less than or equal to {most}"


def _bounded(settings: BrokerConfigValues, name: str) -> Iterator[str]:
    """Yield Kafka's error messages if ``group.KIND.NAME`` is not in ``group.KIND.min.NAME`` to ``group.KIND.max.NAME``.

    ``name`` is ``KIND.NAME``, such as ``consumer.session.timeout.ms``.
    """
    kind, _, rest = name.partition(".")
    own, least, most = f"group.{name}", f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    value, low, high = (settings.number(x) for x in (own, least, most))
    if high < low:
        yield f"{most} must be greater than or equal to {least}"
    if value < low:
        yield f"{own} must be greater than or equal to {least}"
    if value > high:
        yield f"{own} must be less than or equal to {most}"


def _share_groups(settings: BrokerConfigValues) -> Iterator[str]:
    """Yield Kafka's error messages for the violated rules of ``ShareGroupConfig``."""
    for name in ("delivery.count.limit", "partition.max.record.locks", "record.lock.duration.ms"):
        own, least, most = f"group.share.{name}", f"group.share.min.{name}", f"group.share.max.{name}"
        value, low, high = (settings.number(x) for x in (own, least, most))
        if high < value:
            yield f"{most} must be greater than or equal to {own}"
        if value < low:
            yield f"{own} must be greater than or equal to {least}"
    sessions, size = "group.share.max.share.sessions", "group.share.max.size"
    if settings.number(sessions) < settings.number(size):
        yield f"{sessions} must be greater than or equal to {size}"
