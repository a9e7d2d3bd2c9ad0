"""Settings that real brokers are started with: at least one for each rule of ``KafkaConfig.validateValues``.

Source: ``KafkaConfig.validateValues``, ``GroupCoordinatorConfig.java``, ``ShareGroupConfig.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from compat_tests.support.processes import KafkaProcess, NodeProcess, free_ports
from ottla.controller.config.tests.test_broker_config_validation import (
    ACCEPTED,
    ASSIGNOR,
    REFUSED,
    UNRESOLVED,
    settings,
)

ROLES = "must contain at least one value appearing in the 'listeners' configuration"
BOTH = "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}"
BROKER = "process.roles=broker listeners=PLAINTEXT://127.0.0.1:{port}"
CONTROLLER = (
    "process.roles=controller listeners=CONTROLLER://127.0.0.1:{port} advertised.listeners=CONTROLLER://127.0.0.1:{port}"
    " controller.quorum.bootstrap.servers=127.0.0.1:{port}"
)
MAP = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
SASL = (
    "listeners=S://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller} advertised.listeners=S://127.0.0.1:{port}"
    " inter.broker.listener.name=S listener.security.protocol.map=S:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
)
DUPLICATE = f"group.consumer.assignors=uniform,{ASSIGNOR}UniformAssignor"
NO_VOTERS = "either controller.quorum.bootstrap.servers must"


class StartupCase(NamedTuple):
    """Settings of a broker, and the part of Kafka's message that names the rule they break."""

    text: str
    expected_error: str | None = None
    """None where Kafka starts."""
    is_documented_difference: bool = False
    """True if the difference is in `docs/reference/limitations.md`."""


RULES: dict[str, tuple[StartupCase, ...]] = {
    "node.id = broker.id": (
        StartupCase("broker.id=2", "You must set `node.id` to the same value as `broker.id`"),
        StartupCase("broker.id=+1 node.id=01"),
    ),
    "log.roll.ms >= 1": (StartupCase("log.roll.ms=0", "log.roll.ms must be greater"), StartupCase("log.roll.ms=1")),
    "log.roll.jitter.ms >= 0": (StartupCase("log.roll.jitter.ms=-1", "log.roll.jitter.ms must be greater"),),
    "log.retention.ms = -1 or >= 1": (
        StartupCase("log.retention.hours=0", "log.retention.ms must be unlimited"),
        StartupCase("log.retention.minutes=0", "log.retention.ms must be unlimited"),
        StartupCase("log.retention.ms=0", "log.retention.ms must be unlimited"),
        StartupCase("log.retention.ms=-7"),
    ),
    "a log directory": (StartupCase("log.dirs=", ""), StartupCase("log.dirs=,", "")),
    "log.cleaner.dedupe.buffer.size > 1 MiB for each thread": (
        StartupCase("log.cleaner.dedupe.buffer.size=1048576", "at least 1MB per cleaner thread"),
        StartupCase("log.cleaner.dedupe.buffer.size=1048577"),
        StartupCase("log.cleaner.threads=0", "/ by zero"),
    ),
    "replica.fetch.wait.max.ms <= replica.socket.timeout.ms": (
        StartupCase("replica.fetch.wait.max.ms=30001", "replica.socket.timeout.ms should always be at least"),
    ),
    "replica.fetch.wait.max.ms <= replica.lag.time.max.ms": (
        StartupCase(
            "replica.fetch.wait.max.ms=20000 replica.lag.time.max.ms=10000", "to prevent frequent changes in ISR"
        ),
    ),
    "broker.heartbeat.interval.ms * 2 <= broker.session.timeout.ms (only logged)": (
        StartupCase("broker.heartbeat.interval.ms=5000"),
    ),
    "controller.quorum.voters or controller.quorum.bootstrap.servers": (
        StartupCase("controller.quorum.bootstrap.servers=", NO_VOTERS, is_documented_difference=True),
        StartupCase(f"{BROKER} controller.quorum.bootstrap.servers=", NO_VOTERS),
        StartupCase(f"{CONTROLLER} controller.quorum.bootstrap.servers=", NO_VOTERS, is_documented_difference=True),
    ),
    "controllers are among their voters": (
        StartupCase("controller.quorum.voters=2@127.0.0.1:{controller}", "must be included in the set of voters"),
        StartupCase(f"{CONTROLLER} controller.quorum.voters=2@127.0.0.1:1", "must be included in the set of voters"),
    ),
    "a controller listener is advertised": (
        StartupCase(
            f"controller.listener.names=OTHER {MAP},OTHER:PLAINTEXT",
            ROLES,
        ),
    ),
    "controller.listener.names are among the listeners": (
        StartupCase(
            f"controller.listener.names=CONTROLLER,OTHER {MAP},OTHER:PLAINTEXT", "must only contain values appearing"
        ),
        StartupCase(f"{CONTROLLER} controller.listener.names=CONTROLLER,OTHER", "must only contain values appearing"),
    ),
    "a broker listener is advertised": (
        StartupCase(
            "controller.listener.names=CONTROLLER,PLAINTEXT", "must be at least one broker advertised listener"
        ),
    ),
    "brokers are not among the voters": (
        StartupCase(f"{BROKER} controller.quorum.voters=1@127.0.0.1:1", "must not be included in the set of voters"),
    ),
    "brokers have controller.listener.names": (StartupCase(f"{BROKER} controller.listener.names=", ""),),
    "brokers have no controller listener": (
        StartupCase("process.roles=broker", "must not contain a value appearing in the 'listeners' configuration"),
    ),
    "brokers map controller.listener.names": (
        StartupCase(
            f"{BROKER} listener.security.protocol.map=PLAINTEXT:PLAINTEXT", "Controller listener with name CONTROLLER"
        ),
    ),
    "brokers do not join the quorum": (
        StartupCase(
            f"{BROKER} controller.quorum.auto.join.enable=true", "is only supported when process.roles contains"
        ),
    ),
    "controllers have controller listeners only": (
        StartupCase("process.roles=controller", "config must only contain KRaft controller listeners"),
        StartupCase(CONTROLLER),
    ),
    "controllers have no inter.broker.listener.name of theirs": (
        StartupCase(f"{CONTROLLER} inter.broker.listener.name=CONTROLLER", "must not contain an explicitly set"),
        StartupCase(f"{CONTROLLER} inter.broker.listener.name=PLAINTEXT"),
    ),
    "inter.broker.listener.name is advertised": (
        StartupCase(
            f"inter.broker.listener.name=OTHER {MAP},OTHER:PLAINTEXT", "must be a listener name defined in advertised"
        ),
        StartupCase("security.inter.broker.protocol=SSL", "must be a listener name defined in advertised"),
    ),
    "advertised.listeners are among the listeners": (
        StartupCase(
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},OTHER://127.0.0.1:1 {MAP},OTHER:PLAINTEXT",
            "listener names must be equal to or a subset of",
        ),
    ),
    "cordoned.log.dirs": (
        StartupCase("cordoned.log.dirs=*,/a", "must not contain other values"),
        StartupCase("cordoned.log.dirs=/a", "Missing entries : /a"),
        StartupCase("cordoned.log.dirs=*"),
    ),
    "advertised broker listeners are routable": (
        StartupCase(
            "advertised.listeners=PLAINTEXT://0.0.0.0:{port}", "cannot use the nonroutable meta-address 0.0.0.0"
        ),
    ),
    "advertised controller listeners are routable": (
        StartupCase(
            "advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://0.0.0.0:{controller}",
            "cannot use the nonroutable meta-address 0.0.0.0",
        ),
        StartupCase(
            f"{BOTH} advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}}"
        ),
    ),
    "sasl.mechanism.inter.broker.protocol is enabled": (
        StartupCase(
            f"{SASL} sasl.enabled.mechanisms=PLAIN", "must be included in sasl.enabled.mechanisms when SASL is used"
        ),
        StartupCase(
            f"{SASL} sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256 sasl.enabled.mechanisms=SCRAM-SHA-256"
            " listener.name.s.sasl.enabled.mechanisms=PLAIN",
            "must be included in sasl.enabled.mechanisms when SASL is used",
        ),
    ),
    "queued.max.request.bytes >= socket.request.max.bytes": (
        StartupCase("queued.max.request.bytes=1000", "queued.max.request.bytes must be larger or equal"),
        StartupCase("queued.max.request.bytes=0"),
    ),
    "max.connections.per.ip = 0 has overrides": (
        StartupCase("max.connections.per.ip=0", "max.connections.per.ip can be set to zero only if"),
    ),
    "max.connections.per.ip.overrides": (
        StartupCase("max.connections.per.ip.overrides=a$b:5", "contains invalid addresses : a$b"),
        StartupCase("max.connections.per.ip.overrides=x", ""),
        StartupCase("max.connections.per.ip=0 max.connections.per.ip.overrides=127.0.0.1:100"),
    ),
    "connection.failed.authentication.delay.ms < connections.max.idle.ms": (
        StartupCase(
            "connection.failed.authentication.delay.ms=600000", "should always be less than connections.max.idle.ms"
        ),
        StartupCase("connection.failed.authentication.delay.ms=700000 connections.max.idle.ms=-1"),
    ),
    "resolved after validateValues": (
        StartupCase(f"{BOTH} controller.quorum.voters=1@0.0.0.0:{{controller}}", "0.0.0.0"),
        StartupCase("listeners=PLAINTEXT://127.0.0.1:99999,CONTROLLER://127.0.0.1:{controller}", "port out of range"),
        StartupCase("remote.log.storage.system.enable=true", ""),
        StartupCase("authorizer.class.name=x.y.Z", ""),
        *(StartupCase(text, "") for text in UNRESOLVED if text != DUPLICATE),
        StartupCase(DUPLICATE, is_documented_difference=True),
        StartupCase(
            "listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},S://127.0.0.1:0"
            " listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,S:SSL",
            is_documented_difference=True,
        ),
    ),
    "principal.builder.class is set": (StartupCase("principal.builder.class=", ""),),
    "principal.builder.class implements KafkaPrincipalSerde": (
        StartupCase("principal.builder.class=java.lang.String", "must implement KafkaPrincipalSerde"),
    ),
}
"""The rules of ``KafkaConfig.validateValues`` in its order. That a controller alone advertises a listener cannot be
broken without breaking the one before it.
"""
EXCLUDED_TEXTS = ("log.dirs=", "127.0.0.1:-1")
"""Texts of settings that need directories of their own or a connection from this host, and so are left out."""
OTHER_CASES = [
    StartupCase(text, message)
    for text, message in (
        *((text, None) for text in ACCEPTED),
        *REFUSED,
    )
    if text != DUPLICATE and not any(x in text for x in EXCLUDED_TEXTS)
]
"""Settings that keep or break each rule of ``ottla.controller.config.broker_config_validation``."""
STARTUP_CASES = list(dict.fromkeys([*(start for rule in RULES.values() for start in rule), *OTHER_CASES]))


class OttlaWithKafkaConfig(NodeProcess):
    """Ottla, started with the configuration file of a Kafka and a directory of its own."""

    def __init__(self, kafka: KafkaProcess, data_dir: Path, *program: str) -> None:
        super().__init__(data_dir, kafka.port)
        self.program = program
        self.config = data_dir.parent / f"{data_dir.name}.properties"
        self.config.write_text(
            kafka.config.read_text().replace(f"log.dirs={kafka.data_dir}\n", f"log.dirs={data_dir}\n")
        )

    def command(self) -> list[str]:
        """Return the command line."""
        return [*self.program, "serve", "--config", str(self.config)]


def kafka_process(start: StartupCase, data_dir: Path) -> KafkaProcess:
    """Return a Kafka process with some settings, its ports filled in."""
    port, controller = free_ports(2)
    given = {name: x.format(port=port, controller=controller) for name, x in settings(start.text).items()}
    if "{controller}" in start.text:
        given.setdefault("controller.quorum.bootstrap.servers", f"127.0.0.1:{controller}")
    return KafkaProcess(data_dir, port, **given)
