"""Well-formed requests with random values, of every API in every version, which learn from responses.

`RandomRequestGenerator` makes them. Names, ids and epochs in responses are put into later requests, so that some pass
the first checks: the id of a member with the epoch of another group, or the id of a topic with a partition it does not
have.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from ottla.controller.config.broker_config_keys import BROKER_KEYS
from ottla.controller.config.config_keys import GROUP_KEYS, OWN_BROKER_KEYS, OWN_TOPIC_KEYS, TOPIC_KEYS, broker_key
from ottla.wire.codec.compiler import encode
from ottla.wire.codec.interpreter import spec_of
from ottla.wire.codec.schema import FieldSpec, Message, fields_of
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignmentTopicPartition as Placed
from ottla.wire.record_batch import batch_header, records
from ottla.wire.record_batch.compression import CompressionType
from ottla.wire.record_batch.record import NewRecord
from ottla.wire.tests.random_messages import fill_message

RANGES = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}
SMALL = (0, 0, 0, 1, 1, 2, 3, 5, 10, 100)
UNUSUAL_TEXTS = (
    "",
    " ",
    " t",
    "t ",
    "t\x00",
    "naïve",
    "\ud7ff",
    "x" * 249,
    "x" * 250,
    "x" * 30_000,
    "1 ",
    " 1",
    " zstd",
)
NAMES = """
t u T . .. a/b ../t g h s w k m x * , ,, = a=b [] [1,2] true True false null none all user client-id ip 127.0.0.1
__cluster_metadata __consumer_offsets __transaction_state __share_group_state __remote_log_metadata
0 1 -1 +1 1.5 1e3 NaN Infinity 99999999999999999999 by_duration:PT1H
User:ANONYMOUS User:a User:* Group:a <default> consumer range uniform roundrobin read_committed latest delete compact
SCRAM-SHA-256 SCRAM-SHA-512 PLAINTEXT kafka-cluster broker metrics interval.ms match zstd
metadata.version kraft.version transaction.version group.version share.version eligible.leader.replicas.version
cleanup.policy compression.type retention.ms segment.bytes min.insync.replicas max.message.bytes group.protocol
follower.replication.throttled.rate leader.replication.throttled.replicas share.auto.offset.reset
consumer_byte_rate producer_byte_rate request_percentage controller_mutation_rate connection_creation_rate
"""
TEXTS = (*UNUSUAL_TEXTS, *NAMES.split())
NEAR_NUMBERS = ("#", " #", "# ", "#,#", "+#", "0#", "-#", "#0", "#.0", "#_0", "0", "1", "2", "-2")
"""Values near the default of a setting."""
CORRUPTIBLE_FIELDS = (
    ("last_offset_delta", "int32"),
    ("records_count", "int32"),
    ("base_offset", "int64"),
    ("base_timestamp", "int64"),
    ("max_timestamp", "int64"),
    ("attributes", "int16"),
    ("magic", "int8"),
)
"""Invalid values of fields of a batch's header."""
GROUPS = {"Consumer": "h", "Share": "s", "Streams": "w"}
"""Group ids by kind of group; an API without one of these words gets a classic group."""
LIKELY_VALUES: dict[str, tuple[Any, ...]] = {
    "name": ("t", "u"),
    "topic": ("t", "u"),
    "topic_name": ("t", "u"),
    "topics": ("t", "u"),
    "topic_names": ("t",),
    "subscribed_topic_names": ("t", "u"),
    "source_topics": ("t", "u"),
    "source_topic_regex": (),
    "repartition_sink_topics": (),
    "subscribed_topic_regex": (None, None, "t|u", "[tu]", "("),
    "subtopology_id": ("0", "1"),
    "process_id": ("p", "q"),
    "topic_partitions": (),
    "active_tasks": (),
    "standby_tasks": (),
    "warmup_tasks": (),
    "client_tags": (),
    "copartition_groups": (),
    "share_session_epoch": (0, 1, 2, -1),
    "share_acquire_mode": (0, 1),
    "member_id": ("", "m1", "m2"),
    "group_instance_id": (None, None, "i"),
    "instance_id": (None, None, "i"),
    "rack_id": (None,),
    "server_assignor": (None, "uniform", "range"),
    "protocol_type": ("consumer",),
    "protocol_name": ("range",),
    "session_timeout_ms": (10_000,),
    "rebalance_timeout_ms": (3_000,),
    "transaction_timeout_ms": (60_000, 1_000),
    "transactional_id": ("x", "y", None),
    "v3_and_below_transactional_id": ("x", "y"),
    "partition": (0, 1, 2),
    "partition_index": (0, 1, 2),
    "partition_indexes": (0, 1, 2),
    "partitions": (0, 1, 2),
    "acks": (-1, -1, 1, 0),
    "replica_id": (-1,),
    "max_wait_ms": (0, 20),
    "min_bytes": (0, 1),
    "max_bytes": (1 << 20,),
    "partition_max_bytes": (1 << 20,),
    "max_records": (10, 500),
    "batch_size": (10, 500),
    "acknowledge_types": (1, 2, 3, 0, 4),
    "timeout_ms": (0, 100, 1000),
    "timestamp": (-1, -2, -3, -4, -5, 0),
    "num_partitions": (1, 3, -1),
    "replication_factor": (1, 3, -1),
    "count": (2, 4, 5),
    "brokers": (1, 2, 3),
    "broker_ids": (1, 2, 3),
    "replicas": (1, 2, 3),
    "broker_id": (1, 2, 3),
    "resource_type": (2, 4, 32, 16),
    "resource_name": ("t", "u", "1", "", "g", "h"),
    "config_operation": (0, 1, 2, 3),
    "user": ("a", "b"),
    "mechanism": (1, 2),
    "iterations": (4096,),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("a", None, "127.0.0.1"),
    "principal": ("User:a", "User:*"),
    "host": ("*", "127.0.0.1"),
    "operation": (3, 4, 2, 12),
    "permission_type": (3, 2),
    "resource_pattern_type": (3, 4),
    "feature": ("metadata.version", "group.version", "transaction.version", "share.version", "kraft.version"),
    "key_type": (0, 1, 2),
    "coordinator_keys": ("g", "h", "s", "w", "x"),
    "key": ("g", "x", "consumer_byte_rate", "retention.ms"),
    "cluster_id": (None,),
}
"""Plausible values by the name of a field."""
SETTINGS = (
    *TOPIC_KEYS,
    *GROUP_KEYS,
    *OWN_TOPIC_KEYS,
    *(k for k, key in BROKER_KEYS.items() if key.is_dynamic),
    *OWN_BROKER_KEYS,
)
EXCLUDED_SETTINGS = ("listener", "connection", "ssl.", "sasl.", "principal", "advertised")
"""Parts of setting names that may, by design, make the node unreachable for all clients."""
SETTING_NAMES = tuple(name for name in SETTINGS if not any(word in name for word in EXCLUDED_SETTINGS))
OF_BROKERS = tuple(name for name in SETTING_NAMES if name in BROKER_KEYS or name in OWN_BROKER_KEYS)
RESOURCES: tuple[tuple[int, str, Collection[str]], ...] = (
    (2, "t", TOPIC_KEYS),
    (2, "u", TOPIC_KEYS),
    (4, "", OF_BROKERS),
    (4, "1", OF_BROKERS),
    (32, "s", GROUP_KEYS),
    (32, "h", GROUP_KEYS),
)
"""Resources with settings: type, name, and settings."""
ODD_SHARE = 0.05
"""Share of random values in a request that is mostly valid."""
MAX_LEARNT_VALUES = 300
"""Limit of learnt values of each kind; the latest are kept."""
TIMES = ("timeout_ms", "max_wait_ms", "rebalance_timeout_ms", "session_timeout_ms", "transaction_timeout_ms")


class RandomRequestGenerator:
    """Generator of random requests."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._learnt: dict[str, list[Any]] = {}
        self._blobs = tuple(_blobs())
        self._oddness = 1.0
        self.shares: tuple[float, ...] = (1.0, ODD_SHARE, ODD_SHARE, 0.0)
        """Of the values of a message: how many are not meant."""
        self._group = ""

    def generate(self, cls: type[Message], version: int) -> Message:
        """Return a request: some have random values only, others all but a few valid ones."""
        self._oddness = self.rng.choice(self.shares)
        self._group = next((group for word, group in GROUPS.items() if word in cls.__name__), "g")
        return self._struct(cls, version, flexible=version in spec_of(cls).flexible)

    def learn_from(self, message: Message) -> None:
        """Remember the values in a response."""
        for spec in fields_of(type(message)):
            value = getattr(message, spec.name)
            for each in value if isinstance(value, list) else (value,):
                if isinstance(each, Message):
                    self.learn_from(each)
                elif each is not None:
                    for key in (spec.element if spec.is_array else spec.kind, spec.name):
                        known = self._learnt.setdefault(key, [])
                        known.append(each)
                        del known[:-MAX_LEARNT_VALUES]

    def _likely_value(self, spec: FieldSpec) -> Any:
        """Return a value that is likely to be valid: learnt, typical of clients, or the default of the field."""
        rng, kind = self.rng, spec.element if spec.is_array else spec.kind
        known = [value for value in self._learnt.get(spec.name, ())[-6:] if _is(kind, value)]
        if spec.name.startswith("group") and "instance" not in spec.name:
            return self._group
        is_learnt = spec.name == "member_id" and known and rng.random() < 0.7
        if LIKELY_VALUES.get(spec.name) and not is_learnt:
            value = rng.choice(LIKELY_VALUES[spec.name])
            if value == "" and spec.name == "member_id" and self._group != "g":
                value = "m3"
            if value is None or _is(kind, value):
                return value
        if known and kind != "string":
            return rng.choice(known)
        if kind == "records":
            return records.build_batch([NewRecord(b"k", b"v", 10**12)] * rng.choice((1, 3)))
        if kind == "bytes":
            return rng.choice(self._blobs)
        default = spec.default
        return self._scalar(kind, spec.name) if spec.is_array or callable(default) else default

    def _scalar(self, kind: str, name: str) -> Any:
        rng = self.rng
        known = self._learnt.get(name) if rng.random() < 0.8 else self._learnt.get(kind)
        if known and rng.random() < 0.6:
            value = rng.choice(known)
            if kind in RANGES and isinstance(value, int) and 0 < value < 100:
                return value + rng.choice((0, 0, 0, 0, 1, -1))
            if _is(kind, value):
                return value
        if kind in RANGES:
            bits, low = RANGES[kind], 0 if kind.startswith("u") else -1  # less than the minimum
            if name in TIMES:
                return rng.choice((-1, 0, 1, 50, 2**31 - 1))
            limit = 2**bits - 1
            edges = (low, low, low * 2, limit, low * (limit + 1), rng.randint(low * limit, limit))
            return rng.choice((*SMALL, *edges))
        match kind:
            case "bool":
                return rng.random() < 0.5
            case "float64":
                return rng.choice((0.0, -1.5, 1.0, 1e308, float("nan"), float("inf"), rng.random()))
            case "uuid":
                return rng.choice((bytes(16), bytes(15) + b"\x01", rng.randbytes(16)))
            case "string":
                return rng.choice(TEXTS)
            case "records":
                return self._batches()
            case _:
                return rng.choice((b"", b"\x00", *self._blobs, rng.randbytes(rng.choice((1, 20, 200)))))

    def _batches(self) -> bytes:
        rng = self.rng
        out = b""
        for _ in range(rng.choice((0, 1, 1, 1, 2))):
            values = (None, b"", b"v" * rng.choice((1, 100, 5000)))
            some = [
                NewRecord(rng.choice((None, b"k")), rng.choice(values), rng.choice((0, -1, 10**12))) for _ in range(3)
            ]
            ids = {}
            if rng.random() < 0.5:
                ids["producer_id"] = self._scalar("int64", "")
                ids["producer_epoch"] = rng.choice((0, 0, 1, -1, 2**15 - 1))
                ids["base_sequence"] = rng.choice((0, 0, 3, -1, 2**31 - 1))
            codec = rng.choice(list(CompressionType))
            raw = records.build_batch(
                some, codec=codec, attributes=rng.choice((0, 0, 0, 8, 16, 32, 48, 64, 1 << 14)), **ids
            )
            if rng.random() < 0.5:
                field, bits = rng.choice(CORRUPTIBLE_FIELDS)
                header = batch_header.parse_header(raw)._replace(**{field: self._scalar(bits, field)})
                raw = batch_header.pack_batch(header, raw[batch_header.HEADER_BYTES :])
            if rng.random() < 0.1:
                raw = raw[: rng.randrange(len(raw))]
            out += raw
        return out

    def _value(self, spec: FieldSpec, version: int, *, flexible: bool) -> Any:
        rng = self.rng
        odd = rng.random() < self._oddness
        if version in spec.nullable and rng.random() < (0.15 if odd else 0.2 if spec.default is None else 0.0):
            return None
        if spec.is_array:
            size = rng.choice((0, 1, 1, 1, 2, 3) if odd else (1, 1, 2))
            if LIKELY_VALUES.get(spec.name) == () and not odd and rng.random() < 0.7:
                return []
            if spec.element != "struct":
                rows = [self._scalar(spec.element, spec.name) if odd else self._likely_value(spec) for _ in range(size)]
            else:
                assert spec.struct is not None
                rows = [self._struct(spec.struct, version, flexible=flexible) for _ in range(size)]
            return rows + rows[:1] if odd and rng.random() < 0.1 else rows
        if spec.kind == "struct":
            assert spec.struct is not None
            return self._struct(spec.struct, version, flexible=flexible)
        if not odd:
            value = self._likely_value(spec)
            return value if value is not None or version in spec.nullable else spec.default_value()
        return self._scalar(spec.kind, spec.name)

    def _struct(self, cls: type[Message], version: int, *, flexible: bool) -> Message:
        make = partial(self._value, version=version, flexible=flexible)
        made: Any = fill_message(self.rng, cls, version, make, flexible=flexible)
        if cls.__name__ in ("AlterableConfig", "CreatableTopicConfig"):
            made.name, made.value = self._setting(TOPIC_KEYS if "Topic" in cls.__name__ else SETTING_NAMES)
        if cls.__name__ == "AlterConfigsResource" and self.rng.random() >= self._oddness:
            made.resource_type, made.resource_name, among = self.rng.choice(RESOURCES)
            for config in made.configs:
                config.name, config.value = self._setting(among)
        return made  # type: ignore[no-any-return]

    def _setting(self, among: Collection[str]) -> tuple[str, str | None]:
        """Return a setting's name, and a value near its default or far from it."""
        rng = self.rng
        name = rng.choice(tuple(among))
        key = TOPIC_KEYS.get(name) or GROUP_KEYS.get(name) or broker_key(name)
        own = "" if key is None or key.default is None else key.default
        near = (text.replace("#", own) for text in NEAR_NUMBERS)
        return name, rng.choice((*near, *rng.choices(TEXTS, k=3), str(2**31 - 1), str(2**63 - 1), None))


def _is(kind: str, value: Any) -> bool:
    """Return True when a value of a field of that name fits a field of this kind."""
    match value:
        case bool():
            return kind == "bool"
        case int():
            return kind in RANGES and (0 if kind.startswith("u") else -(2 ** RANGES[kind])) <= value < 2 ** RANGES[kind]
        case float():
            return kind == "float64"
        case str():
            return kind == "string" and len(value) < 2**15
        case _:
            return kind == "uuid" if len(value) == 16 else kind == "bytes"


def _blobs() -> Iterator[bytes]:
    """Return bytes that clients of groups send."""
    for version in (0, 3):
        head = version.to_bytes(2, "big")
        yield head + encode(ConsumerProtocolSubscription(["t", "u"]), version)
        yield head + encode(ConsumerProtocolAssignment([Placed("t", [0, 1])]), version)
