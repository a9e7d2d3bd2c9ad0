"""Client metrics (KIP-714): the same requests to a node and to Apache Kafka 4.3.1, and stock clients that push."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.support.processes import KafkaProcess, OttlaProcess, free_port, java_tool
from compat_tests.support.raw_client import RawClient, wait_until, wait_until_brokers_current
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages import api_versions, push_telemetry
from ottla.wire.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.record_batch.compression import CompressionType, compress

CLIENT_METRICS = 16
ID = bytes(range(16))
NAMES = "org.apache.kafka.producer.,org.apache.kafka.consumer.,a,b,c,node.,Aa,BB,x.y.z,\N{GREEK SMALL LETTER OMEGA}"


def telemetry_answers(port: int) -> list[tuple[str, Any]]:
    """Send subscription and push requests, waiting for push intervals only; return the responses."""
    out: list[tuple[str, Any]] = []
    peer = RawClient(port)
    peer.call(ApiKey.API_VERSIONS, 3, api_versions.ApiVersionsRequest("story", "1.2"))

    def configure(name: str, **values: str) -> None:
        configs = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in values.items()]
        resource = AlterConfigsResource(CLIENT_METRICS, name, configs)
        answer = peer.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest([resource]))
        assert answer.responses[0].error_code == 0, answer
        wait_until_brokers_current(peer)

    def ask(label: str, ident: bytes = ID) -> Any:
        answer = peer.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, GetTelemetrySubscriptionsRequest(ident))
        response = answer.error_code, answer.subscription_id, answer.push_interval_ms, answer.requested_metrics
        more = answer.accepted_compression_types, answer.telemetry_max_bytes, answer.delta_temporality
        out.append((f"ask {label}", (response, more, answer.client_instance_id == ID)))
        return answer

    def push(label: str, subscription_id: int, metrics: bytes = b"", codec: int = 0, **more: Any) -> None:
        ident = more.pop("ident", ID)
        request = push_telemetry.PushTelemetryRequest(ident, subscription_id, more.pop("ends", False), codec, metrics)
        out.append((f"push {label}", peer.call(ApiKey.PUSH_TELEMETRY, 0, request).error_code))

    nothing = ask("with no subscription").subscription_id
    ask("again at once")
    push("at any time", nothing)
    push("again at once", nothing)
    configure("all", metrics="*", interval_ms="100")
    every = ask("for all").subscription_id
    push("under the old subscription", nothing)
    ask("again for that")
    time.sleep(0.12)
    push("under the new one", every)
    configure("all", metrics=NAMES, interval_ms="1000", match="client_software_name=st.*,client_id=peer")
    some = ask("for some").subscription_id
    time.sleep(0.01)
    push("an unknown codec", some, codec=9)
    ask("after it")
    time.sleep(1.05)
    push("too much", some, bytes((1 << 20) + 1))
    time.sleep(1.05)
    for codec in CompressionType:
        if codec is not CompressionType.NONE:
            push(f"a bomb of {codec.name}", some, bytes(compress(codec, bytes(4 << 20))), codec)
            time.sleep(1.05)
    push("what is not packed", some, b"nonsense", CompressionType.GZIP)
    time.sleep(1.05)
    push("the last", some, ends=True)
    push("one more", some)
    push("as nobody", some, ident=bytes(16))
    push("as a reserved one", some, ident=bytes(15) + b"\x01")
    configure("all", match="client_software_name=other")
    time.sleep(1.05)
    ask("once it is not meant")
    configure("all", match="client_source_address=127\\.0\\..*")
    ask("by its address")
    peer.close()
    return out


@pytest.mark.xdist_group(__name__)
def test_telemetry_responses_equal_kafka(tmp_path: Path) -> None:
    with OttlaProcess(tmp_path / "ottla") as node:
        ours = telemetry_answers(node.port)
    assert "Traceback" not in node.log.read_text()
    with KafkaProcess(tmp_path / "kafka") as kafka:
        theirs = telemetry_answers(kafka.port)
    assert ours == theirs
    assert len({answer for name, answer in ours if name.startswith("push")}) >= 6


def page(port: int) -> dict[str, list[Any]]:
    """Return the metrics that clients pushed, by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
        text = answer.read().decode()
    found: dict[str, list[Any]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("ottla_client_"):
                found.setdefault(sample.name, []).append(sample)
    return found


def test_stock_clients_push_metrics_of_subscription(data_dir: Path) -> None:
    port = free_port()
    tool = "ClientMetricsCommand"
    with OttlaProcess(data_dir, ottla_metrics_listener=f"127.0.0.1:{port}") as node:
        at = ("--bootstrap-server", node.bootstrap)
        java_tool(tool, *at, "--alter", "--name", "every", "--metrics", "*", "--interval", "500")
        output = java_tool(tool, *at, "--describe", "--name", "every")
        assert "interval.ms=500" in output
        assert "metrics=*" in output
        producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "from-c"})

        def has_pushed() -> bool:
            producer.produce("t", b"x")
            producer.flush(60)
            return any(x.labels["client_id"] == "from-c" for rows in page(port).values() for x in rows if x.labels)

        wait_until(has_pushed)
        few = ("--num-records", "40", "--throughput", "10", "--record-size", "9")  # four seconds, of several intervals
        own = ("--producer-props", f"bootstrap.servers={node.bootstrap}")
        java_tool("ProducerPerformance", "--topic", "t", *few, *own)
        found = page(port)
        clients = {x.labels["client_software_name"] for rows in found.values() for x in rows if x.labels}
        assert len(clients) == 2
        assert any("confluent" in name or "librdkafka" in name for name in clients)
        created = found["ottla_client_org_apache_kafka_producer_connection_creation_total"]
        assert any(x.value > 0 for x in created if x.labels["client_software_name"] == "apache-kafka-java")
        assert "every" in java_tool(tool, *at, "--list")
        java_tool(tool, *at, "--delete", "--name", "every")
        assert "every" not in java_tool(tool, *at, "--list")
    assert "Traceback" not in node.log.read_text()
