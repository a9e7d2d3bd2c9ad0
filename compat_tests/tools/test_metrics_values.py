"""Values of the metrics page compared with those of a stock client and with the files of the node."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.support.processes import OttlaProcess, free_port
from ottla.broker.observability.metric_families import FAMILIES, SUMMARY

GROUP = 'group "1"\\2'


def read_samples(port: int) -> dict[str, float]:
    """Read the page with Prometheus' parser; check that each family is a described one of its type."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
        text = answer.read().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removesuffix("_count") if family.type == SUMMARY else sample.name
            assert FAMILIES[name].kind == family.type, name
            assert {*sample.labels} <= {*FAMILIES[name].labels}, name
            key = f"{sample.name}{sorted(sample.labels.items())}"
            assert key not in found, f"sample twice: {key}"
            found[key] = sample.value
    return found


def value(found: dict[str, float], name: str, **labels: str) -> float:
    return found[f"{name}{sorted(labels.items())}"]


def test_metrics_of_traffic_lag_and_errors_equal_client_actions(data_dir: Path) -> None:
    port = free_port()
    with OttlaProcess(data_dir, ottla_metrics_listener=f"127.0.0.1:{port}") as node:
        servers = {"bootstrap.servers": node.bootstrap}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("t", 2, 1, config={"max.message.bytes": "2000"})])["t"].result(120)
        producer = Producer(
            {**servers, "enable.idempotence": False, "message.max.bytes": 9_000, "batch.num.messages": 10}
        )
        failures: list[object] = []
        producer.produce("t", b"x" * 5000, partition=0, on_delivery=lambda error, _: failures.append(error))
        producer.flush(120)
        for number in range(100):
            producer.produce("t", b"x" * 100, partition=number % 2)
        producer.flush(120)
        assert failures[0] is not None
        with pytest.raises(KafkaException):
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(120)
        consumer = Consumer({**servers, "group.id": GROUP, "enable.auto.commit": False})
        consumer.assign([TopicPartition("t", 0, 0), TopicPartition("t", 1, 0)])
        received = 0
        while received < 100:
            received += len(consumer.consume(100, 10))
        consumer.commit(offsets=[TopicPartition("t", 0, 20), TopicPartition("t", 1, 50)], asynchronous=False)
        ends = [consumer.get_watermark_offsets(TopicPartition("t", number))[1] for number in (0, 1)]
        found = read_samples(port)
        consumer.close()
    traffic = "kafka_server_brokertopicmetrics"
    assert value(found, f"{traffic}_messagesin_total", topic="t") == value(found, f"{traffic}_messagesin_total") == 100
    sizes = [path.stat().st_size for number in (0, 1) for path in (data_dir / f"t-{number}").glob("*.log")]
    assert value(found, f"{traffic}_bytesin_total", topic="t") == sum(sizes)
    assert value(found, f"{traffic}_bytesout_total", topic="t") >= sum(sizes)
    assert value(found, f"{traffic}_bytesrejected_total", topic="t") > 5000
    assert value(found, f"{traffic}_failedproducerequests_total", topic="t") == 0
    errors = "kafka_network_requestmetrics_errors_total"
    assert value(found, errors, request="Produce", error="MESSAGE_TOO_LARGE") >= 1
    assert value(found, errors, request="CreateTopics", error="TOPIC_ALREADY_EXISTS") == 1
    for number, committed in ((0, 20), (1, 50)):
        at = {"topic": "t", "partition": str(number)}
        assert value(found, "kafka_topic_partition_current_offset", **at) == ends[number]
        assert value(found, "kafka_partition_latest_offset", **at) == ends[number]
        assert value(found, "kafka_consumergroup_current_offset", consumergroup=GROUP, **at) == committed
        assert value(found, "kafka_consumergroup_group_offset", group=GROUP, **at) == committed
        assert value(found, "kafka_consumergroup_lag", consumergroup=GROUP, **at) == ends[number] - committed
        assert value(found, "kafka_consumergroup_group_lag", group=GROUP, **at) == ends[number] - committed
    assert value(found, "kafka_consumergroup_lag_sum", consumergroup=GROUP, topic="t") == 30
    assert value(found, "kafka_consumergroup_group_max_lag", group=GROUP) == 30
    assert value(found, "kafka_topic_partitions", topic="t") == 2
    times = "kafka_network_requestmetrics_totaltimems"
    assert 0 < value(found, times, request="Produce", quantile="0.99") < 60_000
    assert value(found, f"{times}_count", request="Produce") == value(found, "ottla_answers_total", request="Produce")
    assert value(found, "process_open_fds") > 10
    assert value(found, "process_resident_memory_bytes") > 10_000_000
    assert value(found, "kafka_server_kafkaserver_brokerstate") == 3
    assert value(found, "kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") > 0
