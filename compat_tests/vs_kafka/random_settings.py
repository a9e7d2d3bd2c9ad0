"""Random values of settings by seed: valid ones, limits, and unusual forms; single settings and pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote_plus, unquote_plus

from compat_tests.support.random_requests import NEAR_NUMBERS
from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import GROUP_KEYS, INTERNAL_TOPIC_KEYS, TOPIC_KEYS, ConfigKey, broker_key
from ottla.controller.config.config_values import INTEGER_BITS
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS
from ottla.controller.config.pluggable_classes import CLASSES_BY_KEY, CONSUMER_ASSIGNORS, STARTUP_CLASSES_BY_KEY

Settings = dict[str, str]
BASE_SETTINGS: Settings = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/tmp/kafka-logs",
}
"""Settings with which both Kafka and Ottla start."""
NUMBERS = (" {}", "{}\t", "\x01{}\x1f", "+{}", "0{}", "{}.0", "{}_0", "{}e0", "{}f", "0x{}", "{} 0", "", "-0", "--1")
FOREIGN = ("\uff15", "\u0663\u0664", "\u0967\u0966", "\U0001d7d7", "\u00b2", "\u00a05", "5\u2003", "\u2212" + "5")
DOUBLES = [
    "0.5f",
    "0.5D",
    ".5",
    "5.",
    "1e-1",
    "0x1p-1",
    "0x.8p0",
    "NaN",
    "-NaN",
    "Infinity",
    "-Infinity",
    "+Infinity",
    "nan",
    "inf",
    "1e400",
    "1e-400",
    "0x1p9999",
    "0.1_0",
    "0,5",
    "1.5.1",
    "1e",
    "0x1",
    "f",
    "1fd",
]
BOOLEANS = ("true", "FALSE", " True", "true\x00", "fal\u017fe", "yes", "1", "", "tru", "true true")
LISTS = (
    "{0}",
    "{0},{1}",
    "{0},{0}",
    " {0} ,\t{1} ",
    "{0},,{1}",
    ",",
    "{0},",
    ",{0}",
    "",
    " ",
    "{0}\u2003,{1}",
    "\u00a0{0}",
)
TEXTS = ("", " ", " {0} ", "{0}\x00", "{0}\u00a0", "x", "X Y")
CLASSES = ("x.y.Z", "", " ", "java.lang.String")
VALUES_BY_KEY: dict[str, tuple[str, ...]] = {
    "max.connections.per.ip.overrides": (
        "127.0.0.1:5",
        "127.0.0.1:-1",
        " a : 5 , b:6 ",
        "x",
        "x:y",
        "a b:5",
        ":5",
        "::1:5",
        "[::1]:5",
        "a:5,",
        ",",
        "a:5,,b:6",
        "a:+5",
        "a:2147483648",
        "a:\uff15",
    ),
    "listeners": (
        "PLAINTEXT://:9092,CONTROLLER://:9093",
        "plaintext://127.0.0.1:9092,CONTROLLER://h:9093",
        "PLAINTEXT://127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "A://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9094",
        "127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1:99999,CONTROLLER://127.0.0.1:9093",
        "PLAINTEXT://[::1]:9092,CONTROLLER://:9093",
        "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092",
        "PLAINTEXT:/127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "PLAINTEXT://h x:9092,CONTROLLER://127.0.0.1:9093",
        "PLAINTEXT://h/x:9092,CONTROLLER://127.0.0.1:9093",
    ),
    "advertised.listeners": (
        "PLAINTEXT://h:1",
        "PLAINTEXT://0.0.0.0:1",
        "CONTROLLER://h:1",
        "PLAINTEXT://h:1,CONTROLLER://h:1",
        "A://h:1",
        "PLAINTEXT://:1",
        "plaintext://h:1",
        "h:1",
        "PLAINTEXT://h:1,PLAINTEXT://g:2",
    ),
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT",
        "A:PLAINTEXT",
        "PLAINTEXT:X,CONTROLLER:PLAINTEXT",
        "plaintext:PLAINTEXT, controller : PLAINTEXT",
        "PLAINTEXT:PLAINTEXT,,CONTROLLER:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,A:B:PLAINTEXT,",
        "x",
    ),
    "controller.quorum.voters": (
        "1@h:1",
        "2@h:1",
        "1@h:1,2@h:2",
        "1@h",
        "x@h:1",
        "1@0.0.0.0:1",
        "1@[::1]:1",
        "@h:1",
        "1@h:x",
        "1@:1",
        "+1@h:1",
    ),
    "controller.quorum.bootstrap.servers": ("h:1", "h", "h:x", "[::1]:1", "h:1,g:2", "h:99999", "PLAINTEXT://h:1"),
    "controller.listener.names": ("CONTROLLER", "PLAINTEXT", "A", "CONTROLLER,PLAINTEXT", "controller"),
    "process.roles": ("broker", "controller", "controller,broker", "Broker", "x"),
    "inter.broker.listener.name": ("PLAINTEXT", "plaintext", "CONTROLLER", "A", "SSL"),
    "security.inter.broker.protocol": ("PLAINTEXT", "SSL", "plaintext"),
    "early.start.listeners": ("PLAINTEXT", "CONTROLLER", "A", "plaintext"),
    "node.id": ("1", "2", "-1", "0"),
    "broker.id": ("1", "2", "-1", "-3"),
    "cordoned.log.dirs": ("*", "*,/tmp/kafka-logs", "/tmp/kafka-logs", "/nowhere"),
    "log.dirs": ("/a,/b", "/a"),
    "group.consumer.assignors": (*CONSUMER_ASSIGNORS, "x.y.Z", "Uniform", "uniform,x"),
    "group.share.assignors": (
        "simple",
        "org.apache.kafka.coordinator.group.assignor.SimpleAssignor",
        "x.y.Z",
        "simple,simple",
    ),
    "group.coordinator.rebalance.protocols": ("consumer", "classic", "CLASSIC", "classic,share"),
    "share.auto.offset.reset": ("earliest", "by_duration:PT1H", "by_duration:-PT1H", "by_duration:x", "Latest"),
    "sasl.enabled.mechanisms": ("PLAIN", "GSSAPI,PLAIN"),
    "leader.replication.throttled.replicas": ("*", "0:1,1:2", "0:1,*", "0:1,,1:2", "0", "*,", " 0:1 , 1:2"),
    "offsets.topic.compression.codec": ("0", "4", "5", "-1"),
    "share.coordinator.state.topic.compression.codec": ("0", "4", "5", "-1"),
    **{
        f"log.{x}": ("0", "-1", "-7", "1")
        for x in ("retention.ms", "retention.minutes", "retention.hours", "roll.ms", "roll.hours")
    },
}
"""Values of individual settings."""
RELATED = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours", "log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.cleaner.threads", "log.cleaner.dedupe.buffer.size"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms", "replica.socket.timeout.ms"),
    ("queued.max.request.bytes", "socket.request.max.bytes"),
    ("max.connections.per.ip", "max.connections.per.ip.overrides"),
    ("connection.failed.authentication.delay.ms", "connections.max.idle.ms"),
    ("cordoned.log.dirs", "log.dirs", "log.dir"),
    ("broker.id", "node.id", "controller.quorum.voters"),
    ("listeners", "advertised.listeners", "controller.listener.names", "listener.security.protocol.map"),
    ("inter.broker.listener.name", "security.inter.broker.protocol", "advertised.listeners"),
    ("process.roles", "listeners", "controller.listener.names", "controller.quorum.voters"),
    ("broker.heartbeat.interval.ms", "broker.session.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("min.compaction.lag.ms", "max.compaction.lag.ms"),
    ("retention.ms", "local.retention.ms"),
    ("retention.bytes", "local.retention.bytes"),
    ("remote.storage.enable", "cleanup.policy"),
    *(
        tuple(name for name in BROKER_KEYS if name.startswith(f"group.{kind}.") and name.endswith(end))
        for kind in ("consumer", "share", "streams")
        for end in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    ),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    *(
        tuple(name for name in BROKER_KEYS if name.startswith("group.share.") and name.endswith(end))
        for end in ("delivery.count.limit", "record.lock.duration.ms", "partition.max.record.locks")
    ),
    ("group.share.max.size", "group.share.max.share.sessions"),
    *((f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms") for kind in ("consumer", "share", "streams")),
)
"""Settings that depend on each other, or that mean the same."""
TABLES: dict[str, Mapping[str, object]] = {
    "broker": {**BROKER_KEYS, **INTERNAL_BROKER_KEYS},
    "topic": {**TOPIC_KEYS, **INTERNAL_TOPIC_KEYS},
    "group": GROUP_KEYS,
}


NODE_VALUES: dict[str, tuple[str, ...]] = {
    "process.roles": ("broker", "controller", "controller,broker"),
    "node.id": ("1", "2"),
    "broker.id": ("1", "2", "01"),
    "listeners": (
        *VALUES_BY_KEY["listeners"],
        "CONTROLLER://127.0.0.1:9093",
        "SSL://:1,CONTROLLER://:2",
        "SASL_PLAINTEXT://:1,CONTROLLER://:2",
        "A://:1",
        "A://:1,B://:2,CONTROLLER://:3",
    ),
    "advertised.listeners": (
        *VALUES_BY_KEY["advertised.listeners"],
        "SSL://h:1",
        "A://h:1,B://h:2",
        "CONTROLLER://0.0.0.0:1",
        "PLAINTEXT://h:1,PLAINTEXT://g:1",
    ),
    "listener.security.protocol.map": (
        *VALUES_BY_KEY["listener.security.protocol.map"],
        "A:SASL_PLAINTEXT,B:SSL,CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT,A:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ),
    "controller.listener.names": (*VALUES_BY_KEY["controller.listener.names"], "CONTROLLER,A", "A,B"),
    "inter.broker.listener.name": (*VALUES_BY_KEY["inter.broker.listener.name"], "B"),
    "security.inter.broker.protocol": (*VALUES_BY_KEY["security.inter.broker.protocol"], "SASL_PLAINTEXT", "x"),
    "sasl.mechanism.inter.broker.protocol": ("PLAIN", "SCRAM-SHA-256"),
    "sasl.enabled.mechanisms": ("PLAIN", "SCRAM-SHA-256", "PLAIN,GSSAPI"),
    "controller.quorum.auto.join.enable": ("true", "false"),
    **{
        name: VALUES_BY_KEY[name]
        for name in ("controller.quorum.voters", "controller.quorum.bootstrap.servers", "early.start.listeners")
    },
}
"""Roles, listeners and voters of a node: their rules concern more than two settings."""


class RandomSettings(NamedTuple):
    """Settings of a broker, topic or group, and those of the broker behind it."""

    kind: str
    broker: Settings
    settings: Settings

    @property
    def to_request_text(self) -> str:
        """Return the request for ``ConfigValidation.java``."""
        return f"{self.kind} {encode_settings(self.broker)} {encode_settings(self.settings)}"


def encode_settings(settings: Mapping[str, str]) -> str:
    """Encode settings in one word."""
    return "&".join(f"{quote_plus(k)}={quote_plus(v)}" for k, v in settings.items()) or "-"


def decode_text(text: str) -> str | None:
    """Decode a text of ``ConfigValidation.java``."""
    return unquote_plus(text[1:]) if text.startswith("=") else None


def config_key(kind: str, name: str) -> ConfigKey:
    """Return the definition of a setting."""
    key = broker_key(name) if kind == "broker" else {**TOPIC_KEYS, **INTERNAL_TOPIC_KEYS, **GROUP_KEYS}[name]
    assert key is not None
    return key


def _limits(key: ConfigKey) -> Iterator[str]:
    bits = INTEGER_BITS.get(key.type, 64)
    ends = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1, 0]
    low, _, high = key.check.partition(",")[0].partition("..")
    ends += [round(float(x)) for x in (low, high) if x.lstrip("-").replace(".", "").isdigit()]
    yield from (str(end + around) for end in dict.fromkeys(ends) for around in (-1, 0, 1))


def candidate_values(key: ConfigKey) -> list[str]:
    """Return all values that can be drawn for one setting."""
    own = "" if key.default is None or key.default == "<required>" else key.default
    out = [*(form.replace("#", own) for form in NEAR_NUMBERS), *VALUES_BY_KEY.get(key.name, ())]
    if key.type in (*INTEGER_BITS, "DOUBLE"):
        usual = own if own.isdigit() else "7"
        out += [*_limits(key), *(form.format(usual) for form in NUMBERS), *FOREIGN]
        out += DOUBLES if key.type == "DOUBLE" else DOUBLES[:4]
    elif key.type == "BOOLEAN":
        out += BOOLEANS
    elif key.type == "CLASS":
        out += [*CLASSES, *CLASSES_BY_KEY.get(key.name, ())]
    else:
        names = key.check.rpartition(":")[2].split("|") if "|" in key.check else own.split(",") if own else ["a", "b"]
        names = [*names, *STARTUP_CLASSES_BY_KEY.get(key.name, ())]
        first, second = names[0], names[-1]
        forms = LISTS if key.type == "LIST" else TEXTS
        out += [form.format(first, second) for form in forms]
        out += [*names, first.upper(), first.lower()]
    return list(dict.fromkeys(out))


class RandomSettingsGenerator:
    """Generator of settings by seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def values(self, per_key: int) -> list[RandomSettings]:
        """Yield some values of every setting."""
        out = []
        for kind, table in TABLES.items():
            for name in table:
                known = candidate_values(config_key(kind, name))
                special = VALUES_BY_KEY.get(name, ())
                chosen = dict.fromkeys([*special, *self.rng.sample(known, min(per_key, len(known)))])
                out += [self._single(kind, {name: value}) for value in chosen]
        return out

    def pairs(self, count: int) -> list[RandomSettings]:
        """Yield pairs of settings, most of them with a rule between them."""
        return [self._pair() for _ in range(count)]

    def nodes(self, count: int) -> list[RandomSettings]:
        """Yield combinations of roles, listeners and voters."""
        return [self._node() for _ in range(count)]

    def _node(self) -> RandomSettings:
        rng = self.rng
        names = rng.sample(tuple(NODE_VALUES), rng.randint(1, 4))
        settings = {name: rng.choice(NODE_VALUES[name]) for name in names}
        if rng.random() < 0.7:
            settings.setdefault("process.roles", rng.choice(NODE_VALUES["process.roles"]))
        if rng.random() < 0.6 and settings.get("process.roles") == "controller":
            settings.setdefault("listeners", "CONTROLLER://127.0.0.1:9093")
        elif rng.random() < 0.6 and settings.get("process.roles") == "broker":
            settings |= {"listeners": "PLAINTEXT://127.0.0.1:9092", "node.id": "7"}
        return self._single("broker", settings)

    def _single(self, kind: str, settings: Settings) -> RandomSettings:
        if kind == "broker":
            return RandomSettings(kind, {k: v for k, v in BASE_SETTINGS.items() if k not in settings}, settings)
        return RandomSettings(kind, BASE_SETTINGS, settings)

    def _pair(self) -> RandomSettings:
        rng = self.rng
        if rng.random() < 0.8:
            names = rng.choice(RELATED)
            kind = next(kind for kind, table in TABLES.items() if names[0] in table)
            names = tuple(rng.sample(names, min(2, len(names))))
        else:
            kind = rng.choice(tuple(TABLES))
            names = tuple(rng.sample(tuple(TABLES[kind]), 2))
        return self._single(kind, {name: self.likely_value(kind, name) for name in names})

    def likely_value(self, kind: str, name: str) -> str:
        """Return a value that is valid by itself in most cases."""
        key, rng = config_key(kind, name), self.rng
        if name in VALUES_BY_KEY and rng.random() < 0.8:
            return rng.choice(VALUES_BY_KEY[name])
        if key.type in INTEGER_BITS and rng.random() < 0.9:
            low, _, high = key.check.partition(",")[0].partition("..")
            own = int(key.default) if key.default and key.default.lstrip("-").isdigit() else 100
            ends = [int(x) for x in (low, high) if x.lstrip("-").isdigit()]
            near = [own, own - 1, own + 1, own // 2, own * 2, own // 10, own * 10, *ends, 0, -1, 1]
            return str(rng.choice(near))
        return rng.choice(candidate_values(key))


def draw_tiered_topic(rng: random.Random) -> RandomSettings:
    """Return settings of a topic, mostly with tiered storage, and of a broker, mostly with it enabled."""
    retentions = ("-1", "1000", "2000", "3600000", "-2")
    broker = dict(BASE_SETTINGS)
    if rng.random() < 0.9:
        broker["remote.log.storage.system.enable"] = "true"
        broker["remote.log.storage.manager.class.name"] = "x.y.Z"
    for name in ("log.retention.bytes", "log.local.retention.bytes", "log.local.retention.ms"):
        if rng.random() < 0.2:
            broker[name] = rng.choice(retentions[:4])
    if rng.random() < 0.2:
        broker["log.retention.hours"] = "1"
    if rng.random() < 0.2:
        broker["log.cleanup.policy"] = rng.choice(("delete", "compact", "compact,delete"))
    settings = {"remote.storage.enable": rng.choice(("true", "true", "true", "false"))}
    for name, values in (
        ("retention.ms", retentions[:4]),
        ("retention.bytes", retentions[:4]),
        ("local.retention.ms", retentions),
        ("local.retention.bytes", retentions),
        ("remote.log.copy.disable", ("true", "false")),
        ("cleanup.policy", ("delete", "", "compact", "delete,compact")),
    ):
        if rng.random() < 0.4:
            settings[name] = rng.choice(values)
    return RandomSettings("topic", broker, settings)
