"""Equivalent spellings of a config value are parsed to the same value (``ConfigDef.parseType``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from ottla.broker.config.node_config import NodeConfig
from ottla.broker.groups.settings import (
    read_consumer_group_settings,
    read_share_group_settings,
    read_streams_group_settings,
)
from ottla.broker.handlers.admin import describe_configs
from ottla.broker.quotas.replication_quota import FOLLOWER, LEADER, ReplicationQuota
from ottla.broker.share_partitions.group_config_provider import ShareGroupConfigProvider
from ottla.broker.tests.handler_fixture import HandlerFixture, as_decoded, resolve, run_virtual
from ottla.controller.config.config_keys import (
    GROUP_KEYS,
    OWN_TOPIC_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    canonical_value,
    check_value,
)
from ottla.controller.metadata.image import (
    RESOURCE_BROKER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.controller.partitions.leader_and_isr_updates import topic_change_rules
from ottla.jobs.job import run_to_end
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import metadata_records
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla.wire.record_batch.compression import CompressionType

KEYS = {**TOPIC_KEYS, **OWN_TOPIC_KEYS}
NUMBERS = ("-2", "-1", "0", "0.25", "1", "7", "1000", "46000", "1048577", "+2097152")
WORDS = ("true", "false", "earliest", "latest", "by_duration:PT1H", "*", "0:1", "0:1,1:2,2:1", "")
AROUND = (" {}", "{} ", "\t {}\r\n")
ODD = ("\x00{}", "\u00a0{}", "{}\u2003", "{},\u00a0{}", "1_{}")


def image_with(*records: metadata_records.ConfigRecord) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    draft.replay(metadata_records.TopicRecord("t", bytes([9] * 16)))
    draft.replay(metadata_records.PartitionRecord(0, bytes([9] * 16), [1, 2], [1], [], [], 1, 0, 0, 0, [bytes(16)] * 2))
    for record in records:
        draft.replay(record)
    return run_to_end(draft.image(1, 1))


def values_of(key: ConfigKey) -> list[str]:
    """Return some valid values in their usual spelling."""
    words = [] if ".." in key.check else key.check.removeprefix("anycase:").split("|")
    lists = [",".join(words), ",".join(reversed(words))] if key.type == "LIST" else []
    named = [*NUMBERS, *WORDS, *words, *lists, *([] if key.default is None else [key.default])]
    return [x for x in dict.fromkeys(named) if check_value(key, x) is None]


def written(key: ConfigKey, value: str) -> Iterator[str]:
    """Return other spellings of a value."""
    forms = [value]
    if key.type == "BOOLEAN":
        forms += [value.upper(), value.title()]
    if key.type == "LIST":
        forms += [value.replace(",", between) for between in (", ", " ,", "\t,\n ")]
    yield from forms[1:]
    yield from (dependencies.format(form) for form in forms for dependencies in AROUND)


def odd(key: ConfigKey, value: str) -> Iterator[str]:
    """Return values that may be valid or invalid; a valid one must not cause an error later."""
    return (x for x in (dependencies.format(value, value) for dependencies in ODD) if check_value(key, x) is None)


def read_topic(config: NodeConfig, image: MetadataImage, name: str) -> list[Any]:
    """Return all settings that are read of a topic."""
    sides = [ReplicationQuota(side, 1) for side in (LEADER, FOLLOWER)]
    return [
        config.log_settings(image, "t"),
        config.topic_text(image, "t", KEYS[name]),
        topic_change_rules(image, config.values, image.topics["t"]),
        [side.is_throttled(image, "t", number) for side in sides for number in range(3)],
    ]


@pytest.mark.parametrize("name", KEYS)
def test_topic_config_spellings_parse_alike_at_every_level(name: str) -> None:
    key = KEYS[name]

    def everywhere(text: str) -> list[Any]:
        own = image_with(metadata_records.ConfigRecord(RESOURCE_TOPIC, "t", name, text))
        out = [read_topic(NodeConfig(), own, name)]
        if key.broker_key is not None:
            for broker_id in ("", "1"):
                out.append(
                    read_topic(
                        NodeConfig(),
                        image_with(metadata_records.ConfigRecord(RESOURCE_BROKER, broker_id, key.broker_key, text)),
                        name,
                    )
                )
            out.append(read_topic(NodeConfig({key.broker_key: text}), image_with(), name))
        return out

    assert values_of(key)
    for value in values_of(key):
        for form in written(key, value):
            assert check_value(key, form) is None, (value, form)
            assert everywhere(form) == everywhere(value), (value, form)
        for form in odd(key, value):
            everywhere(form)


class NoEnv:
    """Environment without log and clock."""


@pytest.mark.parametrize("name", GROUP_KEYS)
def test_group_config_spellings_parse_alike(name: str) -> None:
    key, config = GROUP_KEYS[name], NodeConfig()
    bounded = {
        **read_consumer_group_settings(config).bounded_settings,
        **read_share_group_settings(config).bounded_settings,
        **read_streams_group_settings(config).bounded_settings,
    }

    def read(text: str) -> list[Any]:
        image = image_with(metadata_records.ConfigRecord(RESOURCE_GROUP, "g", name, text))
        rules = ShareGroupConfigProvider(NoEnv(), config, lambda: image)  # type: ignore[arg-type]
        out: list[Any] = [rules.limits("g"), rules.is_read_committed("g"), rules._text("g", name)]
        return [
            *out,
            *([bounded[name].effective_value(image.config(RESOURCE_GROUP, "g")[name])] if name in bounded else []),
        ]

    assert values_of(key)
    for value in values_of(key):
        for form in written(key, value):
            assert check_value(key, form) is None, (value, form)
            assert read(form) == read(value), (value, form)
        for form in odd(key, value):
            read(form)


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("compression.type", " zstd", "compression_type", CompressionType.ZSTD),
        ("compression.type", "uncompressed ", "compression_type", CompressionType.NONE),
        ("cleanup.policy", "delete, compact", "compact", True),
        ("cleanup.policy", "compact , delete", "delete", True),
        ("message.timestamp.type", " LogAppendTime", "log_append_time", True),
        ("ottla.validate.records", " TRUE ", "validate_records", True),
    ],
)
def test_blanks_and_case_do_not_change_config_value(name: str, text: str, field: str, value: object) -> None:
    image = image_with(metadata_records.ConfigRecord(RESOURCE_TOPIC, "t", name, text))
    assert getattr(NodeConfig().log_settings(image, "t"), field) == value
    assert image.config(RESOURCE_TOPIC, "t")[name] == text, "and what was sent is kept"


def test_node_config_values_are_normalized() -> None:
    config = NodeConfig(
        {"auto.create.topics.enable": " FALSE", "broker.rack": " r1 ", "of.a.plug-in": " x ", "num.partitions": " 3\n"}
    )
    assert config.values == {
        "auto.create.topics.enable": "false",
        "broker.rack": "r1",
        "of.a.plug-in": " x ",
        "num.partitions": "3",
    }
    assert not config.flag("auto.create.topics.enable")
    assert config.number("num.partitions") == 3


def test_canonical_value_of_unknown_key_is_unchanged() -> None:
    assert canonical_value(None, " A, b ") == " A, b "


def rows_of(fixture: HandlerFixture, kind: int, name: str, *keys: str) -> list[DescribeConfigsResourceResult]:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, list(keys) or None)], True)
    answer = run_virtual(
        partial(resolve, describe_configs.handle(fixture.context(ApiKey.DESCRIBE_CONFIGS, 4), request))
    )
    configs: list[DescribeConfigsResourceResult] = as_decoded(answer, 4).results[0].configs
    return configs


def test_described_group_falls_back_on_settings_of_the_broker() -> None:
    fixture = HandlerFixture()
    fixture.services.config = fixture.config = NodeConfig({"group.consumer.session.timeout.ms": "50000"})
    fixture.hosted.image = image_with(
        metadata_records.ConfigRecord(RESOURCE_BROKER, "", "group.share.assignment.interval.ms", "7")
    )
    names = "consumer.session.timeout.ms", "share.assignment.interval.ms", "share.auto.offset.reset"
    rows = {row.name: row for row in rows_of(fixture, RESOURCE_GROUP, "g", *names)}
    assert {name: (row.value, row.config_source) for name, row in rows.items()} == {
        names[0]: ("50000", describe_configs.STATIC_BROKER),
        names[1]: ("7", describe_configs.DYNAMIC_DEFAULT),
        names[2]: ("latest", describe_configs.DEFAULT),
    }
    assert [(x.name, x.value, x.source) for x in rows[names[0]].synonyms] == [
        ("group.consumer.session.timeout.ms", "50000", describe_configs.STATIC_BROKER),
        ("group.consumer.session.timeout.ms", "45000", describe_configs.DEFAULT),
    ]


def test_described_broker_includes_settings_beside_the_definitions() -> None:
    fixture = HandlerFixture()
    given = {
        "listener.name.plaintext.max.connections": "5",
        "listener.name.x.plain.sasl.jaas.config": "secret",
        "log.initial.task.delay.ms": "9",
        "of.a.plug-in": "x",
        "super.users": "User:a",
    }
    fixture.services.config = fixture.config = NodeConfig({"node.id": "1", **given})
    fixture.hosted.image = image_with(metadata_records.ConfigRecord(RESOURCE_BROKER, "1", "of.another", "y"))
    rows = {row.name: row for row in rows_of(fixture, RESOURCE_BROKER, "1")}
    assert {name: (rows[name].value, rows[name].is_sensitive) for name in (*given, "of.another")} == {
        "listener.name.plaintext.max.connections": ("5", False),
        "listener.name.x.plain.sasl.jaas.config": (None, True),
        "log.initial.task.delay.ms": ("9", False),
        "of.a.plug-in": (None, True),
        "super.users": (None, True),
        "of.another": (None, True),
    }
    synonyms = rows["listener.name.plaintext.max.connections"].synonyms
    assert [x.name for x in synonyms] == ["listener.name.plaintext.max.connections", "max.connections"]
    assert rows["of.another"].config_source == describe_configs.DYNAMIC_BROKER


def test_describe_configs_returns_canonical_value_and_broker_default_as_sent() -> None:
    """``ConfigHelper``: ``ConfigDef.convertToString`` of what was parsed."""
    fixture = HandlerFixture()
    fixture.services.config = fixture.config = NodeConfig({"node.id": "1"})
    own = {"cleanup.policy": "compact, delete ", "preallocate": " TRUE"}
    configs = {
        (RESOURCE_TOPIC, "t"): own,
        (RESOURCE_GROUP, "g"): {"share.isolation.level": " read_committed"},
        (RESOURCE_BROKER, ""): {"log.cleanup.policy": "delete, compact"},
        (RESOURCE_CLIENT_METRICS, "m"): {"metrics": " org.a , org.b,org.a"},
    }
    fixture.hosted.image = replace(image_with(), configs=configs)

    def described(kind: int, name: str, *keys: str) -> list[tuple[str | None, str | None]]:
        return [(row.value, row.synonyms[0].value) for row in rows_of(fixture, kind, name, *keys)]

    assert described(RESOURCE_TOPIC, "t", *own) == [("compact,delete", "compact,delete"), ("true", "true")]
    assert described(RESOURCE_GROUP, "g", "share.isolation.level") == [("read_committed", "read_committed")]
    assert described(RESOURCE_CLIENT_METRICS, "m", "metrics") == [("org.a,org.b", "org.a,org.b")]
    assert described(RESOURCE_BROKER, "1", "log.cleanup.policy") == [("delete,compact", "delete, compact")]
    assert described(RESOURCE_BROKER, "", "log.cleanup.policy") == [("delete, compact", "delete, compact")]
