"""Dashboards asked of a Prometheus that scrapes three nodes under load.

``python -m compat_tests.tools.dashboard_session BOARD.json ...`` prints the queries of Grafana dashboards that return
no data. Metric names of Kubernetes and of the Java runtime are not counted.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import ottla
from compat_tests.tools.grafana_dashboard import GrafanaDashboard, PanelQuery, replace_variables
from compat_tests.tools.prometheus_server import PrometheusServer
from ottla.tools.free_ports import free_ports

MONITOR_PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "monitor.md"
TOPICS = ("orders", "payments", "clicks")
GROUP = "billing"
DATA_TIMEOUT_S = 300.0
HTTP_PORTS = range(31_000, 32_000)
FOREIGN = ("jvm_", "container_", "kubelet_")
"""Prefixes of metrics of the Java runtime and of Kubernetes, which a node does not have."""


def documented_text(file: str) -> str:
    """Return the content of a file on the page about monitoring."""
    return MONITOR_PAGE.read_text().partition(f"file={file}\n")[2].partition("```")[0]


def documented_configuration(addresses: list[str]) -> dict[str, Any]:
    """Return the configuration of three nodes on the page about monitoring, with these addresses."""
    configuration: dict[str, Any] = yaml.safe_load(documented_text("prometheus-dashboards.yml"))
    (job,) = configuration["scrape_configs"]
    job |= {"scrape_interval": "1s", "scrape_timeout": "1s"}
    for target, address in zip(job["static_configs"], addresses, strict=True):
        target["targets"] = [address]
    return configuration


class ClusterTraffic:
    """Producer and group member that write and read in a thread until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._stop = threading.Event()
        self._failure: list[BaseException] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe(list(TOPICS))
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.05):
                self._produce(20)
                if self._consumer.consume(20, 0.05):
                    with contextlib.suppress(KafkaException):  # repeated with the next records
                        self._consumer.commit(asynchronous=False)
        except BaseException as error:
            self._failure.append(error)

    def _produce(self, count: int) -> None:
        for number in range(count):
            for topic in TOPICS:
                self._producer.produce(topic, b"x" * 100, partition=number % 3)
        self._producer.flush(120)

    def stop(self) -> None:
        """Stop reading, and append some records that the group has not read; a second call has no effect."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        assert not self._failure, self._failure
        self._consumer.close()
        self._produce(7)


class DashboardSession:
    """Prometheus beside three nodes under load."""

    def __init__(
        self, cluster: ottla.Cluster, prometheus: PrometheusServer, traffic: ClusterTraffic, console_port: int
    ) -> None:
        self.cluster = cluster
        self.prometheus = prometheus
        self.traffic = traffic
        self.console_port = console_port
        """Port of the console of one node."""

    def without_data(self, queries: Iterable[str]) -> set[str]:
        """Return the queries that have returned no data within `DATA_TIMEOUT_S`."""
        missing, deadline = set(queries), time.monotonic() + DATA_TIMEOUT_S
        while missing and time.monotonic() < deadline:
            missing = {query for query in missing if not self.prometheus.query(query)}
            time.sleep(0.2)
        return missing

    def dashboard_queries(self, dashboard: GrafanaDashboard) -> dict[PanelQuery, str]:
        """Return the queries of a dashboard with the variables replaced, without those of `FOREIGN` metrics."""
        values = dashboard.variables(self.prometheus)
        return {
            query: replace_variables(query.text, values)
            for query in dashboard.queries()
            if not any(name.startswith(FOREIGN) for name in re.findall(r"\w+", query.text))
        }


def _consecutive_free_ports(count: int) -> int:
    """Return the first of consecutive free ports, which no node of a test cluster draws."""
    first = random.randrange(len(HTTP_PORTS) - count)
    for port in (*HTTP_PORTS[first:-count], *HTTP_PORTS[:first]):
        with contextlib.suppress(OSError):  # one of them has a listener
            free_ports("127.0.0.1", count, range(port, port + count))
            return port
    raise AssertionError("no free ports")


@contextlib.contextmanager
def start_session(folder: Path) -> Iterator[DashboardSession]:
    """Start three nodes, Prometheus and the traffic; yield once all nodes have been scraped."""
    first = _consecutive_free_ports(4)
    store = folder / "store"
    store.mkdir()
    settings = {
        "ottla.metrics.listener": f"127.0.0.1:{first}",
        "ottla.console.listener": f"127.0.0.1:{first + 3}",
        "remote.log.storage.system.enable": "true",  # for the metrics of the remote store
        "rsm.config.url": str(store),
    }
    with ottla.Cluster(3, data_dir=folder / "cluster", settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for number, topic in enumerate(TOPICS):
            rows = [[(number + partition + step) % 3 + 1 for step in range(3)] for partition in range(3)]
            admin.create_topics([NewTopic(topic, 3, replica_assignment=rows)])[topic].result(120)
        with contextlib.suppress(KafkaException):  # an error code, which a dashboard counts
            admin.create_topics([NewTopic(TOPICS[0], 1, 1)])[TOPICS[0]].result(120)
        addresses = [f"127.0.0.1:{first + number}" for number in range(3)]
        with PrometheusServer(folder, documented_configuration(addresses)) as prometheus:
            traffic = ClusterTraffic(cluster.bootstrap_servers)
            session = DashboardSession(cluster, prometheus, traffic, first + 3)
            assert not session.without_data(["sum(up) == 3"])
            try:
                yield session
            finally:
                traffic.stop()


def main() -> int:
    """Ask the queries of the given dashboards, and print those without data; return 1 if there are any."""
    missing = 0
    with tempfile.TemporaryDirectory() as folder, start_session(Path(folder)) as session:
        deadline = time.monotonic() + DATA_TIMEOUT_S
        while not session.prometheus.query("kafka_consumergroup_lag") and time.monotonic() < deadline:
            time.sleep(0.2)
        for file in map(Path, sys.argv[1:]):
            dashboard = GrafanaDashboard(file)
            queries = session.dashboard_queries(dashboard)
            total = len(list(dashboard.queries()))
            empty = session.without_data(set(queries.values()))
            missing += len(empty)
            print(f"{dashboard.title}: {total} queries, {len(queries)} of Kafka, {len(empty)} without data")
            for query, text in queries.items():
                if text in empty:
                    print(f"  {query.panel}: {text}")
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
