"""The topic and group settings Kafka 4.3.1 knows: type, default, what a value must keep to, the broker key behind it.

Source: ``LogConfig.java``, ``GroupConfig.java``, ``ServerTopicConfigSynonyms.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Check = Callable[[str], str | None]
"""Gives what is wrong with a value's text, or None."""


def at_least(low: float) -> Check:
    """A number not below ``low``."""
    return lambda text: None if float(text) >= low else f"Value must be at least {low:g}"


def between(low: float, high: float) -> Check:
    """A number in a range, both ends included."""
    return lambda text: None if low <= float(text) <= high else f"Value must be between {low:g} and {high:g}"


def one_of(*names: str) -> Check:
    """One name, or a list of them, out of a set."""
    return lambda text: (
        None if all(x.strip() in names for x in text.split(",")) else f"String must be one of: {', '.join(names)}"
    )


def gzip_level(text: str) -> str | None:
    """1 to 9, or -1 for zlib's own choice."""
    return None if int(text) == -1 or 1 <= int(text) <= 9 else "Value must be between 1 and 9 or equal to -1"


def any_text(text: str) -> str | None:
    """Everything is right."""
    return None


class ConfigKey(NamedTuple):
    """One setting."""

    name: str
    type: str
    default: str | None
    check: Check = any_text
    broker_key: str | None = None


def check_value(key: ConfigKey, value: str) -> str | None:
    """What is wrong with ``value`` for ``key``, or None.

    The words are those of Kafka's ``ConfigDef``, since tools show them.
    """
    text = value.strip()
    try:
        if key.type in ("INT", "LONG", "SHORT"):
            bits = {"INT": 31, "LONG": 63, "SHORT": 15}[key.type]
            if not -(2**bits) <= int(text) < 2**bits:
                raise ValueError
        elif key.type == "DOUBLE":
            float(text)
    except ValueError:
        return f"Invalid value {value} for configuration {key.name}: Not a number of type {key.type}"
    if key.type == "BOOLEAN" and text.lower() not in ("true", "false"):
        return f"Invalid value {value} for configuration {key.name}: Expected value to be either true or false"
    wrong = key.check(text)
    return None if wrong is None else f"Invalid value {value} for configuration {key.name}: {wrong}"


_TOPIC = (
    ConfigKey("segment.bytes", "INT", "1073741824", at_least(1048576), "log.segment.bytes"),
    ConfigKey("segment.ms", "LONG", "604800000", at_least(1), "log.roll.ms"),
    ConfigKey("segment.jitter.ms", "LONG", "0", at_least(0), "log.roll.jitter.ms"),
    ConfigKey("segment.index.bytes", "INT", "10485760", at_least(4), "log.index.size.max.bytes"),
    ConfigKey("flush.messages", "LONG", "9223372036854775807", at_least(1), "log.flush.interval.messages"),
    ConfigKey("flush.ms", "LONG", "9223372036854775807", at_least(0), "log.flush.interval.ms"),
    ConfigKey("retention.bytes", "LONG", "-1", any_text, "log.retention.bytes"),
    ConfigKey("retention.ms", "LONG", "604800000", at_least(-1), "log.retention.ms"),
    ConfigKey("max.message.bytes", "INT", "1048588", at_least(0), "message.max.bytes"),
    ConfigKey("index.interval.bytes", "INT", "4096", at_least(0), "log.index.interval.bytes"),
    ConfigKey("delete.retention.ms", "LONG", "86400000", at_least(0), "log.cleaner.delete.retention.ms"),
    ConfigKey("min.compaction.lag.ms", "LONG", "0", at_least(0), "log.cleaner.min.compaction.lag.ms"),
    ConfigKey("max.compaction.lag.ms", "LONG", "9223372036854775807", at_least(1), "log.cleaner.max.compaction.lag.ms"),
    ConfigKey("file.delete.delay.ms", "LONG", "60000", at_least(0), "log.segment.delete.delay.ms"),
    ConfigKey("min.cleanable.dirty.ratio", "DOUBLE", "0.5", between(0, 1), "log.cleaner.min.cleanable.ratio"),
    ConfigKey("cleanup.policy", "LIST", "delete", one_of("delete", "compact"), "log.cleanup.policy"),
    ConfigKey("unclean.leader.election.enable", "BOOLEAN", "false", any_text, "unclean.leader.election.enable"),
    ConfigKey("min.insync.replicas", "INT", "1", at_least(1), "min.insync.replicas"),
    ConfigKey(
        "compression.type",
        "STRING",
        "producer",
        one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "compression.type",
    ),
    ConfigKey("compression.gzip.level", "INT", "-1", gzip_level, "compression.gzip.level"),
    ConfigKey("compression.lz4.level", "INT", "9", between(1, 17), "compression.lz4.level"),
    ConfigKey("compression.zstd.level", "INT", "3", between(-131072, 22), "compression.zstd.level"),
    ConfigKey("preallocate", "BOOLEAN", "false", any_text, "log.preallocate"),
    ConfigKey(
        "message.timestamp.type",
        "STRING",
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "log.message.timestamp.type",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        "LONG",
        "9223372036854775807",
        at_least(0),
        "log.message.timestamp.before.max.ms",
    ),
    ConfigKey("message.timestamp.after.max.ms", "LONG", "3600000", at_least(0), "log.message.timestamp.after.max.ms"),
    ConfigKey("leader.replication.throttled.replicas", "LIST", ""),
    ConfigKey("follower.replication.throttled.replicas", "LIST", ""),
    ConfigKey("remote.storage.enable", "BOOLEAN", "false"),
    ConfigKey("local.retention.ms", "LONG", "-2", at_least(-2), "log.local.retention.ms"),
    ConfigKey("local.retention.bytes", "LONG", "-2", at_least(-2), "log.local.retention.bytes"),
    ConfigKey("remote.log.copy.disable", "BOOLEAN", "false"),
    ConfigKey("remote.log.delete.on.disable", "BOOLEAN", "false"),
)

_GROUP = (
    ConfigKey("consumer.session.timeout.ms", "INT", "45000", at_least(0)),
    ConfigKey("consumer.heartbeat.interval.ms", "INT", "5000", at_least(0)),
    ConfigKey("consumer.assignment.interval.ms", "INT", "1000", at_least(0)),
    ConfigKey("share.session.timeout.ms", "INT", "45000", at_least(0)),
    ConfigKey("share.heartbeat.interval.ms", "INT", "5000", at_least(0)),
    ConfigKey("share.record.lock.duration.ms", "INT", "30000", at_least(0)),
    ConfigKey("share.delivery.count.limit", "INT", "5", at_least(0)),
    ConfigKey("share.partition.max.record.locks", "INT", "2000", at_least(0)),
    ConfigKey("share.auto.offset.reset", "STRING", "latest", any_text),
    ConfigKey("share.isolation.level", "STRING", "read_uncommitted", one_of("read_committed", "read_uncommitted")),
    ConfigKey("share.renew.acknowledge.enable", "BOOLEAN", "true"),
    ConfigKey("share.assignment.interval.ms", "INT", "1000", at_least(0)),
    ConfigKey("streams.session.timeout.ms", "INT", "45000", at_least(0)),
    ConfigKey("streams.heartbeat.interval.ms", "INT", "5000", at_least(0)),
    ConfigKey("streams.num.standby.replicas", "INT", "0", at_least(0)),
    ConfigKey("streams.initial.rebalance.delay.ms", "INT", "3000", at_least(0)),
    ConfigKey("streams.assignment.interval.ms", "INT", "1000", at_least(0)),
)

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC}
GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key in _GROUP}
