"""Metrics of a node in the Prometheus format."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from compat_tests.cluster.test_three_nodes import formatted, wait_for
from compat_tests.support.processes import OttlaProcess, free_port


def read_metrics(port: int) -> dict[tuple[str, str], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = answer.read().decode()
    rows = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {
        (x.name, "-".join(x.labels[k] for k in ("topic", "partition", "request") if k in x.labels)): x.value
        for x in rows
    }


def test_metrics_after_produce_equal_log_and_request_counts(data_dir: Path) -> None:
    port = free_port()
    with OttlaProcess(data_dir, ottla_metrics_listener=f"127.0.0.1:{port}") as node:
        before = read_metrics(port)
        assert before["kafka_server_replicamanager_partitioncount", ""] == 0
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(120)
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for number in range(100):
            producer.produce("t", b"x" * 100, partition=number % 2)
        producer.flush(120)
        found = read_metrics(port)
        for partition in (0, 1):
            assert found["kafka_log_log_logendoffset", f"t-{partition}"] == 50
            size = sum(p.stat().st_size for p in (data_dir / f"t-{partition}").glob("*.log"))
            assert found["kafka_log_log_size", f"t-{partition}"] == size > 5000
        assert found["kafka_server_replicamanager_partitioncount", ""] == 2
        assert found["kafka_server_replicamanager_leadercount", ""] == 2
        assert found["kafka_log_logmanager_offlinelogdirectorycount", ""] == 0
        assert found["kafka_controller_kafkacontroller_activecontrollercount", ""] == 1
        assert found["kafka_controller_kafkacontroller_globalpartitioncount", ""] == 2
        assert found["kafka_controller_kafkacontroller_offlinepartitionscount", ""] == 0
        assert found["kafka_server_raft_metrics_current_leader", ""] == 1
        assert found["ottla_scrub_damage_total", ""] == 0
        assert found["ottla_connections", ""] > 0
        assert found["kafka_network_requestmetrics_requests_total", "CreateTopics"] == 1
        for api in ("Produce", "Metadata"):
            assert found["kafka_network_requestmetrics_requests_total", api] == found["ottla_answers_total", api] > 0
        assert found["ottla_request_bytes_total", "Produce"] > 100 * 100 > found["ottla_answer_bytes_total", "Produce"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=300)
        head = urllib.request.Request(f"http://127.0.0.1:{port}/metrics?x=y", method="HEAD")
        with urllib.request.urlopen(head, timeout=300) as response:
            assert (response.status, response.read()) == (200, b"")
            assert int(response.headers["Content-Length"]) > 1000


def test_metrics_listener_with_used_port_fails_start_with_one_line(data_dir: Path) -> None:
    with OttlaProcess(data_dir) as node, pytest.raises(RuntimeError, match="Address already in use"):
        OttlaProcess(data_dir.parent / "other", ottla_metrics_listener=f"127.0.0.1:{node.port}").start()


def test_metrics_of_controller_contain_quorum_and_no_log(tmp_path: Path) -> None:
    controller, port = free_port(), free_port()
    text = (
        f"process.roles=controller\nlisteners=CONTROLLER://127.0.0.1:{controller}\n"
        f"controller.quorum.voters=1@127.0.0.1:{controller}\nottla.metrics.listener=127.0.0.1:{port}\n"
    )
    with formatted(tmp_path, 1, controller, text):
        wait_for(lambda: read_metrics(port)["kafka_controller_kafkacontroller_activecontrollercount", ""] == 1)
        found = read_metrics(port)
    assert found["kafka_server_raft_metrics_number_of_voters", ""] == 1
    assert found["kafka_network_requestmetrics_requests_total", "ApiVersions"] > 0
    assert found["ottla_connections", ""] >= 0
    assert not [name for name, _ in found if name.startswith(("kafka_log", "kafka_server_replicamanager"))]
