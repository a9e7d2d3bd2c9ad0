"""Validation of broker configs: combinations, with valid and invalid values."""

from __future__ import annotations

import pytest

from ottla.controller.config.broker_config_validation import (
    BrokerConfigValues,
    InvalidBrokerConfig,
    check_classes,
    check_combinations,
    check_listener_values,
    check_values,
    connection_overrides,
)

MIB = 1 << 20
ASSIGNOR = "org.apache.kafka.coordinator.group.assignor."
REFUSED: list[tuple[str, str]] = [
    ("log.retention.hours=0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ("log.retention.minutes=0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ("log.retention.ms=0", "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
    ("log.retention.ms=0 log.retention.hours=5", "log.retention.ms must be unlimited"),
    ("log.roll.ms=0", "log.roll.ms must be greater than or equal to 1"),
    ("log.roll.ms=-1", "log.roll.ms must be greater than or equal to 1"),
    ("log.roll.jitter.ms=-1", "log.roll.jitter.ms must be greater than or equal to 0"),
    ("log.cleaner.dedupe.buffer.size=1048576", "must be at least 1MB per cleaner thread"),
    ("log.cleaner.threads=200", "must be at least 1MB per cleaner thread"),
    ("log.cleaner.threads=0", "/ by zero"),
    ("replica.fetch.wait.max.ms=30001", "replica.socket.timeout.ms should always be at least"),
    ("replica.fetch.wait.max.ms=20000 replica.lag.time.max.ms=10000", "replica.lag.time.max.ms to prevent"),
    ("cordoned.log.dirs=*,/a", "it must not contain other values"),
    ("cordoned.log.dirs=/b log.dirs=/a", "Missing entries : /b"),
    ("queued.max.request.bytes=1000", "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"),
    ("max.connections.per.ip=0", "max.connections.per.ip can be set to zero only if"),
    ("max.connections.per.ip.overrides=x", "begin 0, end -1, length 1"),
    ("max.connections.per.ip.overrides=h:x", 'For input string: "x"'),
    ("max.connections.per.ip.overrides=a$b:5", "contains invalid addresses : a$b"),
    ("connection.failed.authentication.delay.ms=600000", "should always be less than connections.max.idle.ms=600000"),
    ("group.consumer.assignors=x.y.Z", "Class x.y.Z cannot be found"),
    ("group.share.assignors=x.y.Z", "Class x.y.Z cannot be found"),
    (f"group.share.assignors=simple,{ASSIGNOR}SimpleAssignor", "must contain exactly one assignor, but found 2"),
    ("group.coordinator.rebalance.protocols=consumer", "Disabling the 'classic' protocol is not supported"),
    ("offsets.topic.compression.codec=5", "Unknown compression type id: 5"),
    ("share.coordinator.state.topic.compression.codec=-1", "Unknown compression type id: -1"),
    ("group.streams.num.standby.replicas=3", "must be less than or equal to group.streams.max.standby.replicas"),
    ("group.share.delivery.count.limit=9 group.share.max.delivery.count.limit=8", "greater than or equal to"),
    ("group.share.delivery.count.limit=2 group.share.min.delivery.count.limit=3", "greater than or equal to"),
    ("group.share.partition.max.record.locks=5000", "group.share.max.partition.max.record.locks must be"),
    ("group.share.min.partition.max.record.locks=2000 group.share.partition.max.record.locks=1999", "must be greater"),
    ("group.share.record.lock.duration.ms=14999", "group.share.min.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms=60001", "group.share.max.record.lock.duration.ms must be"),
    ("group.share.max.share.sessions=199", "must be greater than or equal to group.share.max.size"),
    *(
        (f"group.{kind}.{text}", expected)
        for kind in ("consumer", "share", "streams")
        for text, expected in (
            ("min.heartbeat.interval.ms=15001", "max.heartbeat.interval.ms must be greater than or equal to"),
            ("heartbeat.interval.ms=4999", "min.heartbeat.interval.ms"),
            ("heartbeat.interval.ms=15001", "max.heartbeat.interval.ms"),
            ("min.session.timeout.ms=60001", "max.session.timeout.ms must be greater than or equal to"),
            ("session.timeout.ms=44999", "min.session.timeout.ms"),
            ("session.timeout.ms=60001", "max.session.timeout.ms"),
            ("min.assignment.interval.ms=15001", "max.assignment.interval.ms must be greater than or equal to"),
            ("assignment.interval.ms=15001", "max.assignment.interval.ms"),
        )
    ),
]
ACCEPTED = [
    "",
    "log.retention.hours=-1",
    "log.retention.ms=-7",
    "log.retention.hours=0 log.retention.ms=1",
    "log.retention.minutes=0 log.retention.ms=-1",
    "log.roll.ms=1",
    "log.cleaner.dedupe.buffer.size=1048577",
    "replica.fetch.wait.max.ms=30000",
    "cordoned.log.dirs=*",
    "cordoned.log.dirs=/a log.dirs=/a,/b",
    "cordoned.log.dirs=/b log.dirs=/a process.roles=controller",
    "queued.max.request.bytes=0",
    "queued.max.request.bytes=-5",
    "max.connections.per.ip=0 max.connections.per.ip.overrides=127.0.0.1:-1",
    "connection.failed.authentication.delay.ms=599999",
    "connection.failed.authentication.delay.ms=700000 connections.max.idle.ms=-1",
    f"group.consumer.assignors={ASSIGNOR}RangeAssignor,uniform",
    f"group.share.assignors={ASSIGNOR}SimpleAssignor",
    "group.coordinator.rebalance.protocols=classic",
    "offsets.topic.compression.codec=4",
    "group.consumer.heartbeat.interval.ms=\uff15\uff10\uff10\uff10",
]

UNRESOLVED = [
    "metric.reporters=x.y.Z",
    "kafka.metrics.reporters=x.y.Z",
    "replica.selector.class=x.y.Z",
    "group.share.persister.class.name=x.y.Z",
    "metrics.recording.level=loud",
    f"group.consumer.assignors=uniform,{ASSIGNOR}UniformAssignor",
]


def settings(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split())


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_check_combinations_violated_rule_raises_kafkas_message(text: str, why: str) -> None:
    check_values(settings(text))
    with pytest.raises(InvalidBrokerConfig) as error:
        check_combinations(settings(text))
    assert why in str(error.value)


@pytest.mark.parametrize("text", ACCEPTED)
def test_check_combinations_valid_configs_pass(text: str) -> None:
    check_values(settings(text))
    check_combinations(settings(text))
    check_classes(settings(text))


@pytest.mark.parametrize("text", UNRESOLVED)
def test_check_classes_unknown_name_raises_invalid_broker_config(text: str) -> None:
    with pytest.raises(InvalidBrokerConfig):
        check_classes(settings(text))


@pytest.mark.parametrize(
    "name",
    ["principal.builder.class", "create.topic.policy.class.name", "alter.config.policy.class.name", "sasl.login.class"],
)
def test_check_values_unknown_class_raises_invalid_broker_config(name: str) -> None:
    with pytest.raises(InvalidBrokerConfig, match=r"Class x\.y\.Z could not be found\."):
        check_values({name: "x.y.Z"})


def test_check_values_reports_first_invalid_key_in_kafkas_order() -> None:
    with pytest.raises(InvalidBrokerConfig, match=r"message\.max\.bytes"):
        check_values({"producer.id.expiration.ms": "0", "message.max.bytes": "-1"})


def test_check_listener_values_checks_own_listeners_only() -> None:
    values = {"listener.name.a.ssl.client.auth": "maybe"}
    check_listener_values(values, ["b"])
    with pytest.raises(InvalidBrokerConfig, match=r"Invalid value maybe for configuration ssl\.client\.auth"):
        check_listener_values(values, ["a"])


def test_connection_overrides_parses_csv_map() -> None:
    assert connection_overrides(" a : 5 , ::1:-1,") == {"a": 5, "::1": -1}
    assert connection_overrides("") == {}


def test_milliseconds_uses_finest_unit_that_is_set() -> None:
    assert BrokerConfigValues({}).milliseconds("log.retention.ms") == 168 * 3_600_000
    assert BrokerConfigValues({"log.retention.minutes": "2"}).milliseconds("log.retention.ms") == 120_000
    assert (
        BrokerConfigValues({"log.retention.minutes": "2", "log.retention.ms": "7"}).milliseconds("log.retention.ms")
        == 7
    )
