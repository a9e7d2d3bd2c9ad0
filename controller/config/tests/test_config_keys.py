"""Tables of config keys: accepted values, and Kafka's error messages for the others."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.config.config_keys import (
    GROUP_KEYS,
    OWN_BROKER_KEYS,
    OWN_TOPIC_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    check_value,
)


@pytest.mark.parametrize(
    ("kind", "check", "good", "bad"),
    [
        ("INT", "-", ["-2147483648", "2147483647", " 7 "], ["2147483648", "-2147483649", "1.5", "", "x", "1_0"]),
        ("LONG", "-", ["-9223372036854775808", "9223372036854775807"], ["9223372036854775808", "x"]),
        ("SHORT", "-", ["32767", "-32768"], ["32768", "-32769"]),
        ("INT", "3..5", ["3", "5"], ["2", "6"]),
        ("INT", "3..", ["3", "99"], ["2"]),
        ("INT", "1..9,-1", ["-1", "1", "9"], ["0", "10", "-2"]),
        ("DOUBLE", "0..1", ["0", "1", "0.5"], ["1.1", "-0.1", "x", "0_0", "nan", "inf"]),
        ("BOOLEAN", "-", ["true", "FALSE"], ["yes", ""]),
        ("STRING", "a|b", ["a", "b"], ["c", "A"]),
        ("LIST", "a|b", ["a", "a,b"], ["a,c"]),
    ],
)
def test_check_value_accepts_values_of_type_and_validator(
    kind: str, check: str, good: list[str], bad: list[str]
) -> None:
    key = ConfigKey("k", kind, None, check)
    assert [check_value(key, text) for text in good] == [None] * len(good)
    for text in bad:
        assert check_value(key, text), text


# Kafka's tables: (name, default, accepted values, rejected values), `LogConfig.java`, `GroupConfig.java`.
INT, LONG = 2**31 - 1, 2**63 - 1
EDGES: list[tuple[str, str, list[Any], list[Any]]] = [
    ("segment.bytes", "1073741824", [1048576, INT], [1048575, INT + 1]),
    ("segment.ms", "604800000", [1, LONG], [0, LONG + 1]),
    ("segment.jitter.ms", "0", [0, LONG], [-1]),
    ("segment.index.bytes", "10485760", [4, INT], [3, INT + 1]),
    ("flush.messages", str(LONG), [1, LONG], [0]),
    ("flush.ms", str(LONG), [0, LONG], [-1]),
    ("retention.bytes", "-1", [-(2**63), LONG], [LONG + 1]),
    ("retention.ms", "604800000", [-1, LONG], [-2]),
    ("max.message.bytes", "1048588", [0, INT], [-1, INT + 1]),
    ("index.interval.bytes", "4096", [0, INT], [-1, INT + 1]),
    ("delete.retention.ms", "86400000", [0, LONG], [-1]),
    ("min.compaction.lag.ms", "0", [0, LONG], [-1]),
    ("max.compaction.lag.ms", str(LONG), [1, LONG], [0]),
    ("file.delete.delay.ms", "60000", [0, LONG], [-1]),
    ("min.cleanable.dirty.ratio", "0.5", [0, 1], [-0.1, 1.1]),
    ("cleanup.policy", "delete", ["compact", "compact,delete", "delete"], ["shred", "delete,shred"]),
    ("unclean.leader.election.enable", "false", ["true", "false"], ["1"]),
    ("min.insync.replicas", "1", [1, INT], [0, INT + 1]),
    ("compression.type", "producer", ["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"], ["none", "GZIP"]),
    ("compression.gzip.level", "-1", [-1, 1, 9], [-2, 0, 10]),
    ("compression.lz4.level", "9", [1, 17], [0, 18]),
    ("compression.zstd.level", "3", [-131072, 22], [-131073, 23]),
    ("preallocate", "false", ["true", "false"], ["1"]),
    ("message.timestamp.type", "CreateTime", ["CreateTime", "LogAppendTime"], ["createtime"]),
    ("message.timestamp.before.max.ms", str(LONG), [0, LONG], [-1]),
    ("message.timestamp.after.max.ms", "3600000", [0, LONG], [-1]),
    ("leader.replication.throttled.replicas", "", ["", "*", "0:1", "0:1,22:33", "0:1,"], ["0", "0:1,*", "a:1", "0:-1"]),
    ("follower.replication.throttled.replicas", "", ["", "*", "0:1"], ["**", "0:1:2"]),
    ("remote.storage.enable", "false", ["true", "false"], ["1"]),
    ("local.retention.ms", "-2", [-2, LONG], [-3]),
    ("local.retention.bytes", "-2", [-2, LONG], [-3]),
    ("remote.log.copy.disable", "false", ["true", "false"], ["1"]),
    ("remote.log.delete.on.disable", "false", ["true", "false"], ["1"]),
    ("consumer.session.timeout.ms", "45000", [1, INT], [0, INT + 1]),
    ("consumer.heartbeat.interval.ms", "5000", [1, INT], [0]),
    ("consumer.assignment.interval.ms", "1000", [0, INT], [-1]),
    ("share.session.timeout.ms", "45000", [1, INT], [0]),
    ("share.heartbeat.interval.ms", "5000", [1, INT], [0]),
    ("share.record.lock.duration.ms", "30000", [1000, INT], [999]),
    ("share.delivery.count.limit", "5", [2, INT], [1]),
    ("share.partition.max.record.locks", "2000", [100, INT], [99]),
    (
        "share.auto.offset.reset",
        "latest",
        ["earliest", "latest", "by_duration:PT0S", "by_duration:P1D", "by_duration:P1DT2H3M4.5S"],
        ["none", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:PT-1S", "Latest"],
    ),
    ("share.isolation.level", "read_uncommitted", ["read_committed", "read_uncommitted"], ["serializable"]),
    ("share.renew.acknowledge.enable", "true", ["true", "false"], ["1"]),
    ("share.assignment.interval.ms", "1000", [0, INT], [-1]),
    ("streams.session.timeout.ms", "45000", [1, INT], [0]),
    ("streams.heartbeat.interval.ms", "5000", [1, INT], [0]),
    ("streams.num.standby.replicas", "0", [0, INT], [-1]),
    ("streams.initial.rebalance.delay.ms", "3000", [0, INT], [-1]),
    ("streams.assignment.interval.ms", "1000", [0, INT], [-1]),
]


def test_topic_and_group_keys_equal_kafkas_tables() -> None:
    tables = {**TOPIC_KEYS, **GROUP_KEYS}
    assert [name for name, _, _, _ in EDGES] == list(tables)
    for name, default, taken, refused in EDGES:
        assert tables[name].default == default
        assert [check_value(tables[name], str(v)) for v in taken] == [None] * len(taken), name
        for value in refused:
            wrong = check_value(tables[name], str(value))
            assert wrong is not None, f"{name}={value}"
            assert wrong.startswith("Invalid value "), wrong


def test_check_value_invalid_returns_kafkas_message() -> None:
    for check, text, message in (
        ("something", "", "String must be non-empty"),
        ("anycase:A|B", "c", "String must be one of (case insensitive): A, B"),
        ("a|b", "c", "String must be one of: a, b"),
    ):
        assert (
            check_value(ConfigKey("k", "STRING", None, check), text)
            == f"Invalid value {text} for configuration k: {message}"
        )
    assert check_value(ConfigKey("k", "STRING", None, "something"), "x") is None
    assert check_value(ConfigKey("k", "STRING", None, "anycase:A|B"), "b") is None


def test_own_keys_have_valid_defaults() -> None:
    for key in [*OWN_TOPIC_KEYS.values(), *OWN_BROKER_KEYS.values()]:
        assert key.default is None or check_value(key, key.default) is None
        assert key.default is not None or key.type in ("STRING", "PASSWORD")
