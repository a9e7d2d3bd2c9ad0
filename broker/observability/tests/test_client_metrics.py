"""Client metrics (KIP-714): subscriptions, refused requests, and stored samples."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ottla.broker.config.limits import MAX_CLIENT_METRICS_INSTANCES
from ottla.broker.observability import client_metrics_store as kept
from ottla.broker.observability.client_metrics_instances import ClientMetricsInstanceCache
from ottla.broker.observability.client_metrics_manager import ClientMetricsManager
from ottla.broker.observability.client_metrics_subscriptions import (
    ClientMetricsSubscription,
    MergedSubscription,
    merge_subscriptions,
    read_subscriptions,
)
from ottla.broker.observability.otlp import parse_samples
from ottla.broker.requests.peer import Peer
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import RESOURCE_CLIENT_METRICS, MetadataImage
from ottla.controller.metadata.image_builder import ImageBuilder
from ottla.jobs.job import run_to_end
from ottla.wire.codec.primitives import uuid_from_string, write_uvarint
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.messages import metadata_records
from ottla.wire.messages.push_telemetry import PushTelemetryRequest
from ottla.wire.record_batch.compression import CompressionType, compress

ID, MOST = bytes(range(16)), 1 << 20
CLIENT = {"client_id": "app", "client_software_name": "apache-kafka-java", "client_source_address": "10.0.0.9"}


class TelemetryClock:
    def __init__(self) -> None:
        self.ms = 5_000_000.0
        self.made = 0

    def monotonic_ms(self) -> float:
        return self.ms

    def uuid(self) -> bytes:
        self.made += 1
        return bytes([self.made]) * 16


def image(**subscriptions: dict[str, str]) -> MetadataImage:
    draft = ImageBuilder(MetadataImage())
    for name, values in subscriptions.items():
        for key, value in values.items():
            draft.replay(metadata_records.ConfigRecord(RESOURCE_CLIENT_METRICS, name, key, value))
    return run_to_end(draft.image(1, 1))


class TelemetryNode:
    def __init__(self, **subscriptions: dict[str, str]) -> None:
        self.clock = TelemetryClock()
        env: Any = self.clock
        self.telemetry = ClientMetricsManager(env, True)
        self.peer = Peer("10.0.0.9", ("h", 9092))
        self.subscribe(**subscriptions)

    def subscribe(self, **subscriptions: dict[str, str]) -> None:
        now = image(**subscriptions)
        changed = frozenset((RESOURCE_CLIENT_METRICS, name) for name in subscriptions)
        self.telemetry.publish(now, MetadataDelta(configs=changed))

    def ask(self, ident: bytes = ID) -> Any:
        return self.telemetry.get_subscription(ident, CLIENT, self.peer)

    def push(self, subscription_id: int, metrics: bytes = b"", codec: int = 0, *, ends: bool = False) -> ErrorCode:
        request = PushTelemetryRequest(ID, subscription_id, ends, codec, metrics)
        try:
            run_to_end(self.telemetry.push(request, CLIENT, self.peer, MOST))  # type: ignore[arg-type]
        except ProtocolError as error:
            return error.code
        return ErrorCode.NONE


def refused(work: Any) -> ErrorCode:
    try:
        work()
    except ProtocolError as error:
        return error.code
    return ErrorCode.NONE


# ---------------------------------------------------------------- subscriptions

A = {"metrics": "org.apache.kafka.producer., org.apache.kafka.consumer.", "interval.ms": "10000"}


@pytest.mark.parametrize(
    ("match", "client", "meant"),
    [
        ("", {}, True),
        ("client_id=app", {}, True),
        ("client_id=a", {}, False),  # the whole text must match
        ("client_id=a.*", {}, True),
        ("client_id=app,client_software_name=librdkafka", {}, False),
        ("client_source_address=10\\.0\\..*", {}, True),
        ("client_software_version=3.*", {}, False),  # without a value
        ("client_source_port=.*", {}, False),
        ("client_id=(?=app)app", {}, False),  # Java's, and not RE2's
    ],
)
def test_subscription_match_selects_clients(match: str, client: dict[str, str], *, meant: bool) -> None:
    (found,) = read_subscriptions(image(a={"match": match} if match else A))
    assert found.matches(CLIENT | client) is meant


def test_merge_subscriptions_joins_metrics_and_uses_shortest_interval() -> None:
    many = [ClientMetricsSubscription(("a", "b"), 5000, {}), ClientMetricsSubscription(("c", "a"), 1000, {})]
    assert merge_subscriptions(many) == MergedSubscription(("a", "b", "c"), 1000)
    assert merge_subscriptions([*many, ClientMetricsSubscription(("*",), 9000, {})]) == MergedSubscription(("*",), 1000)
    assert merge_subscriptions([]) == MergedSubscription((), 300_000)


def test_subscription_id_equals_kafka() -> None:
    # Of Kafka 4.3.1 itself, asked for the same (compat_tests/vs_kafka/test_telemetry.py asks again).
    assert MergedSubscription(("*",), 100).subscription_id(uuid_from_string("AAECAwQFBgcICQoLDA0ODw")) == KAFKAS_ID


KAFKAS_ID = 899611809


# ---------------------------------------------------------------- intervals


def test_get_subscriptions_assigns_instance_id_and_enforces_interval() -> None:
    node = TelemetryNode(a=A)
    instance = node.ask(bytes(16))
    assert (instance.client_instance_id, instance.subscription.interval_ms) == (b"\x01" * 16, 10_000)
    assert refused(lambda: node.ask(instance.client_instance_id)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    node.clock.ms += 9_999
    assert refused(lambda: node.ask(instance.client_instance_id)) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    node.clock.ms += 1
    assert node.ask(instance.client_instance_id) is instance


def test_first_push_is_accepted_at_any_time_and_later_ones_at_interval() -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    assert node.push(ident) is ErrorCode.NONE
    node.clock.ms += 9_999
    assert node.push(ident) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    node.clock.ms += 1
    assert node.push(ident) is ErrorCode.NONE
    assert node.push(ident, ends=True) is ErrorCode.NONE, "the last one may come at any time"
    node.clock.ms += 60_000
    assert node.push(ident) is ErrorCode.INVALID_REQUEST, "there is none after the last"


def test_changed_subscription_returns_unknown_subscription_id() -> None:
    node = TelemetryNode(a=A)
    before = node.ask().subscription_id
    node.subscribe(a=A, b={"metrics": "more", "interval.ms": "500"})
    assert node.push(before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = node.ask()
    assert after.subscription_id != before
    assert after.subscription.interval_ms == 500
    node.clock.ms += 500
    assert node.push(after.subscription_id) is ErrorCode.NONE


def test_get_subscriptions_after_refused_push_is_accepted_at_once() -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    assert node.push(ident, codec=7) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(node.ask) is ErrorCode.NONE
    assert refused(node.ask) is ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.mark.parametrize("ident", [bytes(16), bytes(15) + b"\x01"])
def test_push_with_reserved_instance_id_returns_invalid_request(ident: bytes) -> None:
    node = TelemetryNode(a=A)
    request = PushTelemetryRequest(ident)
    with pytest.raises(ProtocolError) as error:
        run_to_end(node.telemetry.push(request, CLIENT, node.peer, MOST))  # type: ignore[arg-type]
    assert error.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("codec", list(CompressionType))
def test_push_decompresses_no_more_than_maximum(codec: CompressionType) -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    code = ErrorCode.TELEMETRY_TOO_LARGE if codec is CompressionType.NONE else ErrorCode.INVALID_RECORD
    assert node.push(ident, bytes(compress(codec, bytes(MOST + 1))), codec) is code


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x7f", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x0b"])
def test_push_of_invalid_message_returns_invalid_record(raw: bytes) -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    assert node.push(ident, raw) is ErrorCode.INVALID_RECORD


# ---------------------------------------------------------------- limits of client instances


def test_client_instances_are_bounded_evicting_longest_idle() -> None:
    instances, peer = ClientMetricsInstanceCache(), Peer("h", ("h", 1))
    for number in range(MAX_CLIENT_METRICS_INSTANCES + 10):
        instances.get_or_create(number.to_bytes(16, "big"), {}, peer, 0)
    assert len(instances) == MAX_CLIENT_METRICS_INSTANCES
    assert len(peer._callbacks) == 1
    instances.get_or_create(bytes(16), {}, peer, 60_000 * 20)
    assert len(instances) == 1


def test_client_instance_is_removed_with_its_connection() -> None:
    node = TelemetryNode(a=A)
    first = node.ask()
    node.peer.mark_disconnected()
    node.peer = Peer("10.0.0.9", ("h", 9092))
    assert node.ask() is not first


# ---------------------------------------------------------------- pushed metrics


def field(number: int, body: bytes) -> bytes:
    return bytes([number << 3 | 2]) + write_uvarint(len(body)) + body


def point(value: float, **labels: str) -> bytes:
    pairs = (field(7, field(1, k.encode()) + field(2, field(1, v.encode()))) for k, v in labels.items())
    return b"".join(pairs) + b"\x11" + bytes(8) + b"\x21" + struct.pack("<d", value)


def metric(name: str, *points: bytes, kind: str = "gauge") -> bytes:
    if kind == "gauge":
        return field(2, field(1, name.encode()) + field(5, b"".join(field(1, p) for p in points)))
    temporality = {"delta": 1, "cumulative": 2}[kind]
    body = b"".join(field(1, p) for p in points) + bytes([2 << 3, temporality, 3 << 3, 1])
    return field(2, field(1, name.encode()) + field(7, body))


def message(*metrics: bytes) -> bytes:
    return field(1, field(1, b"") + field(2, field(1, b"") + b"".join(metrics)))


def shown(node: TelemetryNode) -> list[str]:
    assert node.telemetry.store is not None
    steps = node.telemetry.store.render(node.clock.ms)
    return "".join(run_to_end(steps)).splitlines()  # type: ignore[arg-type]


def test_pushed_metrics_are_exposed_with_client_labels() -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    gauge = metric("org.apache.kafka.producer.rate", point(1.5, topic='t"x', client_id="another"), point(2, node="1"))
    assert (
        node.push(ident, bytes(compress(CompressionType.ZSTD, message(gauge))), CompressionType.ZSTD) is ErrorCode.NONE
    )
    identity = 'client_instance_id="AAECAwQFBgcICQoLDA0ODw",client_id="app",'
    identity += 'client_software_name="apache-kafka-java",client_software_version=""'
    name = "ottla_client_org_apache_kafka_producer_rate"
    assert shown(node) == [
        f"# HELP {name} Pushed by clients.",
        f"# TYPE {name} gauge",
        f'{name}{{{identity},topic="t\\"x"}} 1.5',
        f'{name}{{{identity},node="1"}} 2',
    ]
    node.clock.ms += kept.MIN_EXPIRY_MS
    assert shown(node) == []


def test_delta_sums_are_accumulated_and_cumulative_ones_replaced() -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    for value in (3.0, 4.0):
        node.clock.ms += 10_000
        both = message(metric("d", point(value), kind="delta"), metric("c", point(value), kind="cumulative"))
        assert node.push(ident, both) is ErrorCode.NONE
    values = {line.split("{")[0]: line.split()[-1] for line in shown(node) if line[0] != "#"}
    assert values == {"ottla_client_d": "7", "ottla_client_c": "4"}
    assert "# TYPE ottla_client_d counter" in shown(node)


def test_client_metric_names_cannot_equal_broker_metric_names() -> None:
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    pushed = node.telemetry.store
    assert pushed is not None
    own = [name for name, _ in pushed.push_counters()]
    names = [*own, *(name.removeprefix("ottla_client_") for name in own)]
    assert node.push(ident, message(*(metric(name, point(1)) for name in names))) is ErrorCode.NONE
    theirs = {line.split("{")[0] for line in shown(node) if line[0] != "#"}
    assert len(theirs) == len({*names})
    assert not theirs & {*own}


def test_stored_samples_per_client_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MAX_CLIENT_METRICS_CLIENT_BYTES", 3_300)
    node = TelemetryNode(a=A)
    ident = node.ask().subscription_id
    node.clock.ms += 1
    many = message(*(metric(f"m{number}", point(number)) for number in range(50)))
    assert node.push(ident, many) is ErrorCode.NONE
    assert len([line for line in shown(node) if line[0] != "#"]) == 10
    assert node.telemetry.store is not None
    assert node.telemetry.store.dropped == 40


@pytest.mark.parametrize("full", [False, True])
def test_client_without_stored_samples_is_not_stored(monkeypatch: pytest.MonkeyPatch, *, full: bool) -> None:
    if full:
        monkeypatch.setattr(kept, "MAX_CLIENT_METRICS_TOTAL_BYTES", 100)
    node = TelemetryNode(a=A)
    pushed = node.telemetry.store
    assert pushed is not None
    for number in range(2, 102):
        ident = bytes([number]) * 16
        subscription_id = node.ask(ident).subscription_id
        raw = message(metric("m", point(1))) if full else b"\x78\x01"
        request = PushTelemetryRequest(ident, subscription_id, False, 0, raw)
        run_to_end(node.telemetry.push(request, CLIENT, node.peer, MOST))  # type: ignore[arg-type]
    assert pushed.pushes == 100
    assert len(pushed._clients) == 0
    assert pushed._size_bytes == 0


def test_stored_size_counts_samples_and_is_released_with_them() -> None:
    node = TelemetryNode(a=A)
    pushed = node.telemetry.store
    assert pushed is not None
    ident = node.ask().subscription_id
    node.clock.ms += 1
    node.push(ident, message(metric("m", point(1)), metric("n", point(1))))
    assert pushed._size_bytes == 2 * 301 + len(pushed._clients[ID].identity_labels)
    node.clock.ms += 10_000
    node.push(ident, b"\x78\x01")  # the client is still present, without a new sample
    node.clock.ms += kept.MIN_EXPIRY_MS - 1
    assert shown(node) != []
    node.clock.ms += 1
    assert shown(node) == []
    assert pushed._size_bytes == 0


def test_metric_names_and_labels_are_truncated_and_sanitized() -> None:
    (sample,) = [
        x for x in parse_samples(message(metric("a.b-c{}\n" + "x" * 900, point(1, **{"1 y": "z" * 900})))) if x
    ]
    assert sample.name == ("a_b_c___" + "x" * 900)[:200]
    assert sample.labels == (("_1_y", "z" * 200),)


@pytest.mark.parametrize(("text", "shown_as"), [("__name__", "_name__"), ("._x", "_x"), ("___", "_"), ("_x", "_x")])
def test_reserved_prometheus_label_names_are_changed(text: str, shown_as: str) -> None:
    (sample,) = [x for x in parse_samples(message(metric("m", point(1, **{text: "up"})))) if x]
    assert sample.labels == ((shown_as, "up"),)


JUNK = b"\x78\x01" * 5_000
"""An unknown field, repeated very often."""


@pytest.mark.parametrize("where", range(5), ids=["top", "resource", "scope", "metric", "gauge"])
def test_unknown_fields_are_skipped_in_steps(where: int) -> None:
    junk = [JUNK if number == where else b"" for number in range(5)]
    one = field(1, b"m") + field(5, field(1, point(1)) + junk[4]) + junk[3]
    raw = field(1, field(2, field(2, one) + junk[2]) + junk[1]) + junk[0]
    found = list(parse_samples(raw))
    assert len(found) > 5_000
    assert [x.value for x in found if x is not None] == [1]


@pytest.mark.parametrize("inside", ["point", "label", "value"])
def test_fields_of_a_data_point_are_limited(inside: str) -> None:
    junk = JUNK[:1002]
    value = junk if inside == "value" else field(1, b"v")
    label = field(1, b"k") + field(2, value) + (junk if inside == "label" else b"")
    raw = field(7, label) + b"\x21" + struct.pack("<d", 1) + (junk if inside == "point" else b"")
    with pytest.raises(WireError, match="more than 500"):
        list(parse_samples(message(metric("m", raw))))


def test_fields_of_all_labels_of_a_data_point_are_limited_together() -> None:
    label = field(2, JUNK[:180]) * 90  # half a mebibyte of these blocked the event loop for 0.2 s
    with pytest.raises(WireError, match="more than 500"):
        list(parse_samples(message(metric("m", field(7, label) * 50 + b"\x21" + bytes(8)))))
    usual = point(1, **{f"label{number}": "v" for number in range(40)})
    assert [x.value for x in parse_samples(message(metric("m", usual))) if x] == [1]


def test_parse_samples_yields_often() -> None:
    raw = message(*(metric(f"m{number}", point(number)) for number in range(200)))
    steps = parse_samples(raw)
    assert sum(1 for _ in steps) >= 400
    with pytest.raises(WireError):
        list(parse_samples(raw[:-3]))
