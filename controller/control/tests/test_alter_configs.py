"""AlterConfigs and IncrementalAlterConfigs at the controller (``ConfigurationControlManager``)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.config.config_keys import TOPIC_KEYS
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.image import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from ottla.controller.tests.test_controller_state_machine import create, machine, publish, submit
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from ottla.wire.messages.create_topics import CreatableTopicConfig
from ottla.wire.messages.incremental_alter_configs import AlterableConfig as IncrementalAlterableConfig
from ottla.wire.messages.incremental_alter_configs import AlterConfigsResource as IncrementalAlterConfigsResource
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.metadata_records import (
    FeatureLevelRecord,
)

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
T, B, G, M = RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_GROUP, RESOURCE_CLIENT_METRICS
REQUEST, CONFIG = ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG


def alter(
    controller: ControllerStateMachine, kind: int, name: str, *changes: tuple[Any, ...], check: bool = False
) -> int:
    resource = IncrementalAlterConfigsResource(kind, name, [IncrementalAlterableConfig(*c) for c in changes])
    (row,) = submit(controller, IncrementalAlterConfigsRequest([resource], check)).responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    assert (row.error_message is None) == (row.error_code in (0, ErrorCode.UNKNOWN_SERVER_ERROR))
    return int(row.error_code)


def with_topic() -> ControllerStateMachine:
    controller = machine()
    create(controller, "t")
    return controller


ROWS: list[tuple[int, str, list[tuple[Any, ...]], int]] = [
    (T, "t", [("retention.ms", SET, "5")], 0),
    (T, "t", [("retention.ms", SET, "-2")], CONFIG),
    (T, "t", [("retention.ms", SET, "-1")], 0),
    (T, "t", [("retention.ms", SET, None)], REQUEST),
    (T, "t", [("retention.ms", APPEND, "5")], CONFIG),
    (T, "t", [("retention.ms", SUBTRACT, "5")], CONFIG),
    (T, "t", [("retention.ms", DELETE, None)], 0),
    (T, "t", [("retention.ms", 4, "5")], ErrorCode.UNKNOWN_SERVER_ERROR),
    (T, "t", [("retention.ms", SET, "5"), ("retention.ms", SET, "6")], REQUEST),
    (T, "t", [("no.such", SET, "5")], CONFIG),
    (T, "t", [("no.such", DELETE, None)], 0),
    (T, "u", [("retention.ms", SET, "5")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (T, "t", [("cleanup.policy", APPEND, "compact")], 0),
    (M, "m", [("metrics", APPEND, "org.a")], CONFIG),
    (M, "m", [("match", SUBTRACT, "client_id=a")], CONFIG),
    (T, "t", [("cleanup.policy", SET, "shred")], CONFIG),
    (T, "t", [("leader.replication.throttled.replicas", SET, "x" * 32_768)], CONFIG),
    (T, "t", [("leader.replication.throttled.replicas", SET, "*")], 0),
    (T, "t", [("min.compaction.lag.ms", SET, "6"), ("max.compaction.lag.ms", SET, "5")], CONFIG),
    (T, "t", [("min.compaction.lag.ms", SET, "5"), ("max.compaction.lag.ms", SET, "5")], 0),
    (T, "t", [("remote.storage.enable", SET, "True")], CONFIG),
    (T, "t", [("remote.storage.enable", SET, "false")], 0),
    (B, "", [("log.retention.ms", SET, "5")], 0),
    (B, "1", [("log.retention.ms", SET, "5")], 0),
    (B, "2", [("log.retention.ms", SET, "5")], ErrorCode.BROKER_ID_NOT_REGISTERED),
    (B, "one", [("log.retention.ms", SET, "5")], REQUEST),
    (B, "-1", [("log.retention.ms", SET, "5")], REQUEST),
    (B, "--5", [("log.retention.ms", SET, "5")], REQUEST),
    (B, "\u00b2", [("log.retention.ms", SET, "5")], REQUEST),
    (B, "1" * 5000, [("log.retention.ms", SET, "5")], REQUEST),
    (B, "1", [("node.id", SET, "5")], 0),
    (B, "1", [("log.retention.ms", SET, "soon")], 0),
    (B, "1", [("log.retention.ms", APPEND, "5")], CONFIG),
    (B, "1", [("plugin.of.mine", SET, "5")], 0),
    (B, "1", [("plugin.of.mine", SET, "x" * 32_767)], 0),
    (B, "1", [("plugin.of.mine", SET, "x" * 32_768)], CONFIG),
    (B, "1", [("plugin.of.mine", SET, "\u00e9" * 16_384)], CONFIG),
    (B, "1", [("listeners", SET, "PLAINTEXT://:1")], 0),
    (B, "1", [("ssl.keystore.location", SET, "x")], 0),
    (B, "", [("min.insync.replicas", SET, "2")], 0),
    (B, "", [("min.insync.replicas", DELETE, None)], CONFIG),
    (B, "1", [("min.insync.replicas", SET, "2")], CONFIG),
    (T, "t", [("min.insync.replicas", SET, "2")], 0),
    (G, "g", [("consumer.session.timeout.ms", SET, "45000")], 0),
    (G, "g", [("consumer.session.timeout.ms", SET, "44999")], CONFIG),
    (G, "g", [("consumer.session.timeout.ms", SET, "60001")], CONFIG),
    (G, "g", [("consumer.session.timeout.ms", SET, "60000")], 0),
    (G, "g", [("consumer.heartbeat.interval.ms", SET, "5000")], 0),
    (G, "g", [("consumer.heartbeat.interval.ms", SET, "4999")], CONFIG),
    (G, "g", [("consumer.heartbeat.interval.ms", SET, "15001")], CONFIG),
    (G, "g", [("no.such", SET, "5")], CONFIG),
    (G, "", [("consumer.session.timeout.ms", SET, "45000")], REQUEST),
    (M, "m", [("interval.ms", SET, "100")], 0),
    (M, "m", [("interval.ms", SET, "99")], REQUEST),
    (M, "m", [("interval.ms", SET, "3600000")], 0),
    (M, "m", [("interval.ms", SET, "3600001")], REQUEST),
    (M, "m", [("match", SET, "client_id=a.*, client_source_port=1")], 0),
    (M, "m", [("match", SET, "client_id=(")], CONFIG),
    (M, "m", [("match", SET, "client_id")], CONFIG),
    (M, "m", [("match", SET, "colour=red")], CONFIG),
    (M, "m", [("match", SET, "client_id=a{99999999999999999999}")], CONFIG),  # the library rejects it
    (M, "m", [("match", SET, "client_id=" + "(" * 500 + ")" * 500)], CONFIG),  # rejected here as well
    (M, "m", [("match", SET, "client_id=" + "a" * 1014)], 0),
    (M, "m", [("match", SET, "client_id=" + "a" * 1015)], CONFIG),  # a long pattern takes long to match
    (M, "m", [("no.such", SET, "5")], REQUEST),
    (M, "", [("interval.ms", SET, "100")], REQUEST),
    (7, "x", [("a", SET, "b")], REQUEST),
]


@pytest.mark.parametrize(("kind", "name", "changes", "code"), ROWS)
def test_incremental_alter_configs_returns_kafkas_error_code(
    kind: int, name: str, changes: list[tuple[Any, ...]], code: int
) -> None:
    for check in (True, False):
        controller = with_topic()
        before = controller.image.configs
        assert alter(controller, kind, name, *changes, check=check) == code
        if code or check:
            assert controller.image.configs == before
        elif changes[0][1] == SET:
            assert controller.image.config(kind, name)[changes[0][0]] == changes[0][2]


def test_incremental_alter_configs_unchanged_topic_config_writes_no_record() -> None:
    controller = with_topic()
    alter(controller, T, "t", ("retention.ms", SET, "5"))
    offset = controller.image.offset
    for change in (("retention.ms", SET, "5"), ("retention.bytes", DELETE, None)):
        assert alter(controller, T, "t", change) == 0
    assert controller.image.offset == offset


def test_incremental_alter_configs_append_and_subtract_start_from_current_or_default() -> None:
    controller = with_topic()
    for operation, value, expected in (
        (APPEND, "delete", "delete"),
        (APPEND, "compact,delete", "delete,compact"),
        (SUBTRACT, "compact,nothing", "delete"),
        (APPEND, "compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
    ):
        assert alter(controller, T, "t", ("cleanup.policy", operation, value)) == 0
        found = controller.image.config(T, "t").get("cleanup.policy", TOPIC_KEYS["cleanup.policy"].default)
        assert found == expected


def test_incremental_alter_configs_subtract_removes_one_element_per_name() -> None:
    """``List.remove`` removes the first occurrence; an element appended twice is added once."""
    controller = with_topic()
    name = "leader.replication.throttled.replicas"
    for operation, value, expected in (
        (SET, "1:1,2:1,1:1,3:1", "1:1,2:1,1:1,3:1"),
        (SUBTRACT, "1:1,4:1", "2:1,1:1,3:1"),
        (APPEND, "5:1,5:1,2:1", "2:1,1:1,3:1,5:1"),
        (SUBTRACT, "5:1,1:1,3:1,2:1", ""),
    ):
        assert alter(controller, T, "t", (name, operation, value)) == 0
        assert controller.image.config(T, "t")[name] == expected
    assert alter(controller, T, "t", (name, SET, "1:1" + "1" * 32_757)) == 0
    assert alter(controller, T, "t", (name, APPEND, "1:" + "2" * 8)) == CONFIG, "the resulting value is too long"
    assert alter(controller, T, "t", (name, SUBTRACT, "," * 32_768)) == CONFIG, "the requested value is too long"


def test_alter_configs_above_10000_records_returns_error_for_every_resource() -> None:
    """``QuorumController.MAX_RECORDS_PER_USER_OP``: no part of the request is applied."""
    controller = with_topic()
    changes = [IncrementalAlterableConfig(f"plugin.{n}", SET, "v") for n in range(10_001)]
    few = IncrementalAlterConfigsResource(T, "t", [IncrementalAlterableConfig("retention.ms", SET, "5")])
    one, two = (
        IncrementalAlterConfigsResource(B, "", changes[:5_000]),
        IncrementalAlterConfigsResource(B, "1", changes[:5_000]),
    )
    most = IncrementalAlterConfigsRequest([one, two])
    assert [r.error_code for r in submit(controller, most).responses] == [0, 0]
    assert len(controller.image.config(B, "1")) == 5_000
    before = controller.image
    other = [IncrementalAlterableConfig(c.name, SET, "w") for c in changes]
    one, two = (
        IncrementalAlterConfigsResource(B, "", other[:5_000]),
        IncrementalAlterConfigsResource(B, "1", other[:5_000]),
    )
    for resources in ([few, IncrementalAlterConfigsResource(B, "", other)], [few, one, two], [one, two, few]):
        rows = submit(controller, IncrementalAlterConfigsRequest(resources)).responses
        assert [(r.error_code, r.resource_type, r.resource_name) for r in rows] == [
            (ErrorCode.POLICY_VIOLATION, r.resource_type, r.resource_name) for r in resources
        ]
        assert {r.error_message for r in rows} == {"Unable to perform excessively large batch operation."}
        assert controller.image.configs == before.configs
    none = [AlterConfigsResource(B, "1", [AlterableConfig(c.name, "w") for c in changes])]
    assert submit(controller, AlterConfigsRequest(none)).responses[0].error_code == ErrorCode.POLICY_VIOLATION


def test_incremental_alter_configs_of_many_configs_yields_during_decoding() -> None:
    controller = with_topic()
    many = IncrementalAlterConfigsResource(
        B, "", [IncrementalAlterableConfig(f"plugin.{n}", SET, "v") for n in range(1_000)]
    )
    steps = controller.decide(IncrementalAlterConfigsRequest([many]))
    assert sum(1 for _ in steps) >= 2 * 1_000  # type: ignore[arg-type]
    for settings in ([IncrementalAlterableConfig("retention.ms", SET, "1")], []):
        topics = [IncrementalAlterConfigsResource(T, f"t{n}", settings) for n in range(350)]
        steps = controller.decide(IncrementalAlterConfigsRequest(topics))
        assert sum(1 for _ in steps) >= 350  # type: ignore[arg-type]


def test_incremental_alter_configs_resources_are_independent() -> None:
    controller = with_topic()
    one = IncrementalAlterConfigsResource(T, "t", [IncrementalAlterableConfig("retention.ms", SET, "5")])
    bad = IncrementalAlterConfigsResource(T, "u", [IncrementalAlterableConfig("retention.ms", SET, "5")])
    rows = submit(controller, IncrementalAlterConfigsRequest([one, bad])).responses
    assert [r.error_code for r in rows] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    twice = submit(controller, IncrementalAlterConfigsRequest([one, one])).responses
    assert [r.error_code for r in twice] == [REQUEST]


def replace_all(controller: ControllerStateMachine, *values: tuple[str, str | None], check: bool = False) -> int:
    resource = AlterConfigsResource(T, "t", [AlterableConfig(*v) for v in values])
    return int(submit(controller, AlterConfigsRequest([resource], check)).responses[0].error_code)


def test_alter_configs_replaces_all_configs() -> None:
    controller = with_topic()
    assert replace_all(controller, ("retention.ms", "5"), ("segment.ms", "6")) == 0
    assert replace_all(controller, ("retention.bytes", "7"), ("segment.ms", "6"), check=True) == 0
    assert controller.image.config(T, "t") == {"retention.ms": "5", "segment.ms": "6"}
    assert replace_all(controller, ("retention.bytes", "7"), ("segment.ms", "6")) == 0
    assert controller.image.config(T, "t") == {"retention.bytes": "7", "segment.ms": "6"}
    assert replace_all(controller, ("retention.ms", "5"), ("retention.ms", "5")) == REQUEST
    assert replace_all(controller, ("retention.ms", None)) == REQUEST
    assert replace_all(controller, ("retention.ms", "x")) == CONFIG
    assert controller.image.config(T, "t") == {"retention.bytes": "7", "segment.ms": "6"}
    assert replace_all(controller) == 0
    assert controller.image.config(T, "t") == {}


def test_create_topics_checks_combinations_of_topic_configs() -> None:
    def row(*settings: tuple[str, str | None], **static: str) -> int:
        controller = machine()
        controller.defaults = controller.defaults._replace(
            static_config={k.replace("_", "."): v for k, v in static.items()}
        )
        return int(create(controller, "t", configs=[CreatableTopicConfig(*s) for s in settings]).error_code)

    least, most = "min.compaction.lag.ms", "max.compaction.lag.ms"
    assert row((least, "6"), (most, "5")) == CONFIG
    assert row((least, "6"), (most, "6")) == 0
    assert row((most, "5"), log_cleaner_min_compaction_lag_ms="6") == CONFIG
    assert row((least, "6"), log_cleaner_max_compaction_lag_ms="5") == CONFIG
    assert row(("remote.storage.enable", "true")) == CONFIG
    assert row(("leader.replication.throttled.replicas", ",".join(["1:1"] * 9_000))) == CONFIG, "value too long"
    assert row(("retention.ms", None)) == CONFIG


@pytest.mark.parametrize(("level", "error"), [(30, 0), (29, CONFIG)])
@pytest.mark.parametrize("change", [("cordoned.log.dirs", SET, "/data"), ("cordoned.log.dirs", APPEND, "/data")])
def test_alter_configs_cordoned_log_dirs_requires_metadata_version(
    level: int, error: int, change: tuple[Any, ...]
) -> None:
    controller = machine()
    controller.replay(0, FeatureLevelRecord("metadata.version", level))
    publish(controller, controller.image.offset + 1)
    assert alter(controller, B, "1", change) == error
    assert alter(controller, B, "1", ("message.max.bytes", SET, "7")) == 0, "other configs need no metadata version"
