"""Validation of dynamic broker configs, with Kafka's messages (``DynamicBrokerConfig.validate``)."""

from __future__ import annotations

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.config.reconfiguration import validate_reconfiguration
from ottla.broker.tests.run_steps import run_steps
from ottla.controller.metadata.image import RESOURCE_BROKER, MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import metadata_records

NO_BROKER = "Cannot update these configs at default cluster level, broker id must be specified: [{}]"
OVERRIDES = "max.connections.per.ip.overrides"
CODECS = "uncompressed, zstd, lz4, snappy, gzip, producer"
RETENTION = "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"


def wrapped(why: str) -> str:
    """Return the message of a component that refuses a reconfiguration."""
    text = f"Invalid value org.apache.kafka.common.config.ConfigException: {why}"
    return f"{text} for configuration Invalid dynamic configuration"


def threads(name: str, count: int, limit: str) -> tuple[str, str, str]:
    """Return a row of a thread count."""
    text = f"Dynamic thread count update validation failed for {name}={count}, value should {limit}"
    return name, str(count), wrapped(text)


def local(value: int, why: str) -> tuple[str, str, str]:
    """Return a row of local retention."""
    name = "log.local.retention.ms"
    return name, str(value), wrapped(f"Invalid value {value} for configuration {name}: Value must not be {why}")


def invalid(name: str, value: str, why: str) -> tuple[str, str, str]:
    """Return a row of a value that is invalid by itself."""
    return name, value, f"Invalid value {value} for configuration {name}: {why}"


def fixed(name: str) -> tuple[str, str, str]:
    """Return a row of a config that is not dynamic."""
    return name, "1", f"Cannot update these configs dynamically: [{name}]"


REFUSED: list[tuple[str, str, str]] = [
    ("log.retention.ms", "0", f"requirement failed: {RETENTION}"),
    ("log.roll.ms", "0", "requirement failed: log.roll.ms must be greater than or equal to 1"),
    fixed("log.retention.minutes"),
    fixed("unstable.api.versions.enable"),
    invalid("message.max.bytes", "-1", "Value must be at least 0"),
    invalid("leader.replication.throttled.rate", "-1", "Value must be at least 0"),
    invalid("compression.type", "GZIP", f"String must be one of: {CODECS}"),
    ("log.cleaner.threads", "0", "/ by zero"),
    (
        "log.cleaner.threads",
        "3",
        wrapped("Log cleaner threads cannot be increased to more than double the current value 1"),
    ),
    threads("num.io.threads", 17, "not be greater than double the current value 8"),
    threads("num.io.threads", 3, "be at least half the current value 8"),
    threads("background.threads", 4, "be at least half the current value 10"),
    threads("num.network.threads", 7, "not be greater than double the current value 3"),
    threads("remote.log.reader.threads", 21, "not be greater than double the current value 10"),
    ("max.connections", "0", wrapped("Invalid max.connections 0")),
    ("max.connection.creation.rate", "0", wrapped("Invalid max.connection.creation.rate 0")),
    local(99_999_999_999_999, "more than log.retention.ms property value: 604800000"),
    local(-1, "-1 as log.retention.ms value is set as 604800000."),
    (
        "metric.reporters",
        "x.y.Z",
        wrapped(
            "Validation of dynamic config update of Set(metric.reporters) failed with class "
            "class kafka.server.DynamicMetricsReporters"
        ),
    ),
    (OVERRIDES, "x", f"Error parsing configuration property '{OVERRIDES}': begin 0, end -1, length 1"),
]
ACCEPTED = [
    ("log.retention.ms", "-7"),
    ("num.io.threads", "16"),
    ("num.io.threads", "4"),
    ("num.network.threads", "6"),
    ("log.cleaner.threads", "2"),
    ("log.cleanup.policy", ""),
    ("log.cleanup.policy", " compact , delete "),
    ("unclean.leader.election.enable", "TRUE"),
    ("max.connections.per.ip.overrides", "127.0.0.1:-1"),
    ("log.local.retention.ms", "604800000"),
    ("log.cleaner.min.cleanable.ratio", "0.5f"),
    ("setting.of.a.plug-in", "anything"),
]


def with_settings(*rows: tuple[str, str, str]) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    for broker, name, value in rows:
        draft.replay(metadata_records.ConfigRecord(RESOURCE_BROKER, broker, name, value))
    return run_to_end(draft.image(1, 1))


def refused(name: str, stored: dict[str, str], image: MetadataImage | None = None, **settings: str) -> str | None:
    """Return the message of the refusal."""
    config = NodeConfig({k.replace("_", "."): v for k, v in settings.items()})
    try:
        run_steps(validate_reconfiguration(config, image or MetadataImage(), name, stored))
    except ProtocolError as error:
        return error.message if error.code == ErrorCode.INVALID_REQUEST else f"{error.code}"
    return None


@pytest.mark.parametrize("broker", ["", "1"])
@pytest.mark.parametrize(("name", "value", "why"), REFUSED)
def test_check_change_invalid_config_raises_kafkas_message(broker: str, name: str, value: str, why: str) -> None:
    assert refused(broker, {name: value}) == why


@pytest.mark.parametrize("broker", ["", "1"])
@pytest.mark.parametrize(("name", "value"), ACCEPTED)
def test_check_change_valid_config_passes(broker: str, name: str, value: str) -> None:
    assert refused(broker, {name: value}) is None


def test_check_change_thread_counts_are_relative_to_effective_value() -> None:
    grown = with_settings(("", "num.io.threads", "16"))
    assert refused("1", {"num.io.threads": "32"}, grown) is None
    assert refused("1", {"num.io.threads": "7"}, grown) is not None
    assert refused("", {"num.io.threads": "8"}, num_io_threads="4") is None


def test_check_change_listener_thread_count_is_relative_to_its_own() -> None:
    name = "listener.name.plaintext.num.network.threads"
    assert refused("1", {name: "7"}) is not None
    assert refused("1", {name: "6"}) is None
    assert refused("1", {"listener.name.plaintext.max.connections": "0"}) is not None
    assert refused("1", {"listener.name.elsewhere.max.connections": "0"}) is None


def test_check_change_security_config_requires_listener_prefix_and_broker() -> None:
    prefix = "These security configs can be dynamically updated only per-listener using the listener prefix"
    assert refused("1", {"ssl.keystore.location": "x"}) == f"{prefix}: [ssl.keystore.location]"
    name = "listener.name.plaintext.ssl.keystore.location"
    assert refused("", {name: "x"}) == NO_BROKER.format(name)
    assert refused("1", {name: "x"}) is None
    assert refused("", {"cordoned.log.dirs": "*"}) == NO_BROKER.format("cordoned.log.dirs")


def test_check_change_cordoned_log_dirs_knows_command_line_directories() -> None:
    assert refused("1", {"cordoned.log.dirs": "./ottla-data"}) is None
    assert "Missing entries : /nowhere" in (refused("1", {"cordoned.log.dirs": "/nowhere"}) or "")


def test_check_change_of_active_listeners_raises() -> None:
    assert "listeners cannot be changed" in (refused("1", {"listeners": "PLAINTEXT://:1"}) or "")
    assert refused("1", {"listeners": "x"}) == "Unable to parse a listener name from x"
    changed = refused("1", {"listener.security.protocol.map": "PLAINTEXT:SSL"})
    why = "Security protocol cannot be updated for existing listener ListenerName(PLAINTEXT)"
    assert changed == wrapped(why)
    assert refused("1", {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,B:SSL"}) is None


def test_check_change_validates_combination_of_both_levels() -> None:
    image = with_settings(("1", "log.cleaner.dedupe.buffer.size", "2097153"))
    assert refused("", {"log.cleaner.threads": "2"}, image) is not None
    assert refused("", {"log.cleaner.threads": "2"}) is None
