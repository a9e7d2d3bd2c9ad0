"""Definitions of the topic and group settings of Kafka 4.3.1, and of Ottla's own settings; synonyms of broker settings.

The look-up `broker_key` finds the broker settings of Kafka as well, which are defined in `broker_config_keys`.

Source: ``LogConfig.java``, ``GroupConfig.java``, ``ServerTopicConfigSynonyms.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_values import (
    ConfigKey,
    base_name,
    canonical_value,
    check_value,
    valid_canonical_value,
)
from ottla.controller.config.internal_broker_config_keys import INTERNAL_BROKER_KEYS, QUOTA_KEYS

__all__ = ["ConfigKey", "check_value", "canonical_value", "valid_canonical_value"]


_TOPIC = (
    ConfigKey("segment.bytes", "INT", "1073741824", "1048576..", "log.segment.bytes"),
    ConfigKey("segment.ms", "LONG", "604800000", "1..", "log.roll.ms"),
    ConfigKey("segment.jitter.ms", "LONG", "0", "0..", "log.roll.jitter.ms"),
    ConfigKey("segment.index.bytes", "INT", "10485760", "4..", "log.index.size.max.bytes"),
    ConfigKey("flush.messages", "LONG", "9223372036854775807", "1..", "log.flush.interval.messages"),
    ConfigKey("flush.ms", "LONG", "9223372036854775807", "0..", "log.flush.interval.ms"),
    ConfigKey("retention.bytes", "LONG", "-1", "-", "log.retention.bytes"),
    ConfigKey("retention.ms", "LONG", "604800000", "-1..", "log.retention.ms"),
    ConfigKey("max.message.bytes", "INT", "1048588", "0..", "message.max.bytes"),
    ConfigKey("index.interval.bytes", "INT", "4096", "0..", "log.index.interval.bytes"),
    ConfigKey("delete.retention.ms", "LONG", "86400000", "0..", "log.cleaner.delete.retention.ms"),
    ConfigKey("min.compaction.lag.ms", "LONG", "0", "0..", "log.cleaner.min.compaction.lag.ms"),
    ConfigKey("max.compaction.lag.ms", "LONG", "9223372036854775807", "1..", "log.cleaner.max.compaction.lag.ms"),
    ConfigKey("file.delete.delay.ms", "LONG", "60000", "0..", "log.segment.delete.delay.ms"),
    ConfigKey("min.cleanable.dirty.ratio", "DOUBLE", "0.5", "0..1", "log.cleaner.min.cleanable.ratio"),
    ConfigKey("cleanup.policy", "LIST", "delete", "compact|delete", "log.cleanup.policy"),
    ConfigKey("unclean.leader.election.enable", "BOOLEAN", "false", "-", "unclean.leader.election.enable"),
    ConfigKey("min.insync.replicas", "INT", "1", "1..", "min.insync.replicas"),
    ConfigKey(
        "compression.type",
        "STRING",
        "producer",
        "uncompressed|zstd|lz4|snappy|gzip|producer",
        "compression.type",
    ),
    ConfigKey("compression.gzip.level", "INT", "-1", "1..9,-1", "compression.gzip.level"),
    ConfigKey("compression.lz4.level", "INT", "9", "1..17", "compression.lz4.level"),
    ConfigKey("compression.zstd.level", "INT", "3", "-131072..22", "compression.zstd.level"),
    ConfigKey("preallocate", "BOOLEAN", "false", "-", "log.preallocate"),
    ConfigKey(
        "message.timestamp.type",
        "STRING",
        "CreateTime",
        "CreateTime|LogAppendTime",
        "log.message.timestamp.type",
    ),
    ConfigKey(
        "message.timestamp.before.max.ms",
        "LONG",
        "9223372036854775807",
        "0..",
        "log.message.timestamp.before.max.ms",
    ),
    ConfigKey("message.timestamp.after.max.ms", "LONG", "3600000", "0..", "log.message.timestamp.after.max.ms"),
    ConfigKey("leader.replication.throttled.replicas", "LIST", "", "replicas"),
    ConfigKey("follower.replication.throttled.replicas", "LIST", "", "replicas"),
    ConfigKey("remote.storage.enable", "BOOLEAN", "false"),
    ConfigKey("local.retention.ms", "LONG", "-2", "-2..", "log.local.retention.ms"),
    ConfigKey("local.retention.bytes", "LONG", "-2", "-2..", "log.local.retention.bytes"),
    ConfigKey("remote.log.copy.disable", "BOOLEAN", "false"),
    ConfigKey("remote.log.delete.on.disable", "BOOLEAN", "false"),
)

_GROUP = (
    ConfigKey("consumer.session.timeout.ms", "INT", "45000", "1.."),
    ConfigKey("consumer.heartbeat.interval.ms", "INT", "5000", "1.."),
    ConfigKey("consumer.assignment.interval.ms", "INT", "1000", "0.."),
    ConfigKey("share.session.timeout.ms", "INT", "45000", "1.."),
    ConfigKey("share.heartbeat.interval.ms", "INT", "5000", "1.."),
    ConfigKey("share.record.lock.duration.ms", "INT", "30000", "1000.."),
    ConfigKey("share.delivery.count.limit", "INT", "5", "2.."),
    ConfigKey("share.partition.max.record.locks", "INT", "2000", "100.."),
    ConfigKey("share.auto.offset.reset", "STRING", "latest", "reset"),
    ConfigKey("share.isolation.level", "STRING", "read_uncommitted", "read_committed|read_uncommitted"),
    ConfigKey("share.renew.acknowledge.enable", "BOOLEAN", "true"),
    ConfigKey("share.assignment.interval.ms", "INT", "1000", "0.."),
    ConfigKey("streams.session.timeout.ms", "INT", "45000", "1.."),
    ConfigKey("streams.heartbeat.interval.ms", "INT", "5000", "1.."),
    ConfigKey("streams.num.standby.replicas", "INT", "0", "0.."),
    ConfigKey("streams.initial.rebalance.delay.ms", "INT", "3000", "0.."),
    ConfigKey("streams.assignment.interval.ms", "INT", "1000", "0.."),
)

INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
CLAIMED_TIME = "ottla.retention.claimed.time"
VALIDATE_RECORDS = "ottla.validate.records"
SCRUB_RATE = "ottla.scrub.bytes.per.second"
METRICS_LISTENER = "ottla.metrics.listener"
CONSOLE_LISTENER = "ottla.console.listener"
CONSOLE_SCHEMA_DIR, CONSOLE_SCHEMA_REGISTRY = "ottla.console.schema.dir", "ottla.console.schema.registry"
ALLOWED_HOSTS = "ottla.http.allowed.hosts"
OTLP_ENDPOINT, OTLP_HEADERS = "ottla.otlp.endpoint", "ottla.otlp.headers"
OTLP_INTERVAL, OTLP_TRACE_RATIO = "ottla.otlp.interval.ms", "ottla.otlp.trace.ratio"
AUDIT_LOG = "ottla.audit.log"
FAULTS, FAULTS_LISTENER = "ottla.faults", "ottla.faults.listener"
REPLICA_RECOVERY = "auto.replica.recovery.after.ms"

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _TOPIC}
INTERNAL_TOPIC_KEYS: dict[str, ConfigKey] = {
    INTERNAL_SEGMENT_BYTES: ConfigKey(INTERNAL_SEGMENT_BYTES, "INT", None),
}
"""Internal topic settings (``ConfigDef.defineInternal``): validated, but not in DescribeConfigs."""
OWN_TOPIC_KEYS: dict[str, ConfigKey] = {
    CLAIMED_TIME: ConfigKey(CLAIMED_TIME, "BOOLEAN", "false"),
    VALIDATE_RECORDS: ConfigKey(VALIDATE_RECORDS, "BOOLEAN", "false"),
}
"""Topic settings that Kafka does not have; in DescribeConfigs only if they are set."""
OWN_BROKER_KEYS: dict[str, ConfigKey] = {
    SCRUB_RATE: ConfigKey(SCRUB_RATE, "LONG", "1048576", "0.."),
    METRICS_LISTENER: ConfigKey(METRICS_LISTENER, "STRING", None),
    CONSOLE_LISTENER: ConfigKey(CONSOLE_LISTENER, "STRING", None),
    CONSOLE_SCHEMA_DIR: ConfigKey(CONSOLE_SCHEMA_DIR, "STRING", None),
    CONSOLE_SCHEMA_REGISTRY: ConfigKey(CONSOLE_SCHEMA_REGISTRY, "STRING", None),
    ALLOWED_HOSTS: ConfigKey(ALLOWED_HOSTS, "LIST", ""),
    OTLP_ENDPOINT: ConfigKey(OTLP_ENDPOINT, "STRING", None),
    OTLP_HEADERS: ConfigKey(OTLP_HEADERS, "PASSWORD", None),
    OTLP_INTERVAL: ConfigKey(OTLP_INTERVAL, "INT", "60000", "1000.."),
    OTLP_TRACE_RATIO: ConfigKey(OTLP_TRACE_RATIO, "DOUBLE", "0.0", "0..1"),
    AUDIT_LOG: ConfigKey(AUDIT_LOG, "STRING", "OFF", "anycase:OFF|INFO|DEBUG"),
    FAULTS: ConfigKey(FAULTS, "BOOLEAN", "false"),
    FAULTS_LISTENER: ConfigKey(FAULTS_LISTENER, "STRING", "127.0.0.1:0"),
    REPLICA_RECOVERY: ConfigKey(REPLICA_RECOVERY, "LONG", "0", "0.."),
}
AUTHORIZER_KEYS: dict[str, ConfigKey] = {
    "super.users": ConfigKey("super.users", "STRING", ""),
    "allow.everyone.if.no.acl.found": ConfigKey("allow.everyone.if.no.acl.found", "BOOLEAN", "false"),
}
"""Settings of ``StandardAuthorizer``, which are not part of Kafka's broker definitions."""
GROUP_KEYS: dict[str, ConfigKey] = {key.name: key for key in _GROUP}

# Broker settings with synonyms in order of precedence: (name, factor to the unit of the first name).
SYNONYMS: tuple[tuple[tuple[str, int], ...], ...] = (
    (("log.retention.ms", 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)),
    (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
)

# log.flush.scheduler.interval.ms is a fallback of log.flush.interval.ms, but not the other way round.
_SYNONYMS_OF = {name: names for names in SYNONYMS for name, _ in names if name != "log.flush.scheduler.interval.ms"}


def synonyms_of(name: str) -> tuple[tuple[str, int], ...]:
    """Return a broker setting and its synonyms by precedence: (name, factor to the unit of the first).

    As ``DynamicBrokerConfig.brokerConfigSynonyms``. A setting without synonyms has one entry, with the factor 1.
    """
    return _SYNONYMS_OF.get(name) or ((name, 1),)


def broker_key(name: str) -> ConfigKey | None:
    """Return the definition of a broker setting, which may have a listener prefix; None if it is unknown."""
    base = base_name(name)
    known = BROKER_KEYS.get(base) or INTERNAL_BROKER_KEYS.get(name) or QUOTA_KEYS.get(name)
    own = OWN_BROKER_KEYS.get(name) or AUTHORIZER_KEYS.get(name)
    return own if known is None else ConfigKey(name, known.type, known.default, known.check)


def canonical_values(values: Mapping[str, str]) -> dict[str, str]:
    """Return broker settings with their values in canonical form (see `canonical_value`)."""
    return {name: canonical_value(broker_key(name), value) for name, value in values.items()}


def topic_key(name: str) -> ConfigKey | None:
    """Return the definition of a topic setting, internal ones and Ottla's own included; None if it is unknown."""
    return TOPIC_KEYS.get(name) or INTERNAL_TOPIC_KEYS.get(name) or OWN_TOPIC_KEYS.get(name)


def group_bounds(name: str) -> Iterator[tuple[str, str]]:
    """Yield the broker settings that bound a group setting: ("min" or "max", name).

    ``consumer.session.timeout.ms`` must lie between ``group.consumer.min.session.timeout.ms`` and
    ``group.consumer.max.session.timeout.ms``.
    """
    kind, _, rest = name.partition(".")
    for bound in ("min", "max"):
        key = f"group.{kind}.{bound}.{rest.replace('num.', '')}"
        if key in BROKER_KEYS:
            yield bound, key
