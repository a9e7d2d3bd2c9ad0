"""Dashboards asked of a real Prometheus that scrapes three nodes under load; values compared with Kafka's tools."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from compat_tests.tools.dashboard_session import GROUP, TOPICS, DashboardSession, documented_text, start_session
from compat_tests.tools.grafana_dashboard import GrafanaDashboard, PanelQuery
from compat_tests.tools.kafka_tool_runs import ToolPair
from compat_tests.tools.prometheus_server import PROMETHEUS, QuerySample
from ottla.cli.tests.command_runs import run_command

MONITORING = Path(__file__).parent.parent.parent / "docs" / "monitoring"
VALUES_TIMEOUT_S = 300.0
NODE_SELECTOR = (
    '{namespace="kafka",strimzi_io_cluster="ottla",strimzi_io_name="ottla-kafka",kubernetes_pod_name=~"ottla-[1-3]"}'
)
"""Selector with the labels of Strimzi's dashboards."""
STRIMZI_GAUGES = [
    *(f"kafka_server_replicamanager_{name}" for name in ("leadercount", "partitioncount", "underreplicatedpartitions")),
    *(f"kafka_controller_kafkacontroller_{name}" for name in ("activecontrollercount", "offlinepartitionscount")),
    *(f"kafka_cluster_partition_{name}" for name in ("replicascount", "atminisr", "underminisr")),
    *(f"kafka_server_kafkaserver_linux_disk_{name}_bytes" for name in ("read", "write")),
    "kafka_log_log_size",
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_socket_server_metrics_connection_count",
    "process_open_fds",
]
STRIMZI_COUNTERS = [
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    *(f"kafka_server_brokertopicmetrics_{name}_total" for name in ("bytesin", "bytesout", "messagesin")),
    *(f"kafka_server_brokertopicmetrics_total{name}requests_total" for name in ("produce", "fetch")),
    *(f"kafka_server_brokertopicmetrics_failed{name}requests_total" for name in ("produce", "fetch")),
]
KRAFT_GAUGES = [
    *(f"kafka_server_raftmetrics_current_{name}" for name in ("state", "leader", "vote", "epoch")),
    *(f"kafka_server_raftmetrics_{name}" for name in ("high_watermark", "log_end_offset", "commit_latency_avg")),
    *(f"kafka_server_raftmetrics_{name}_records_rate" for name in ("append", "fetch")),
]
KRAFT_COUNTERS = [
    *(f"kafka_server_raftchannelmetrics_{name}_byte_total" for name in ("incoming", "outgoing")),
    *(f"kafka_server_raftchannelmetrics_{name}_total" for name in ("request", "response")),
]
EXPORTER_GAUGES = [
    "kafka_brokers",
    "kafka_broker_info",
    "kafka_topic_partitions",
    *(f"kafka_topic_partition_{name}" for name in ("current_offset", "oldest_offset", "leader", "leader_is_preferred")),
    *(f"kafka_topic_partition_{name}" for name in ("replicas", "in_sync_replica", "under_replicated_partition")),
    *(f"kafka_consumergroup_{name}" for name in ("members", "current_offset", "lag", "current_offset_sum", "lag_sum")),
]
pytestmark = pytest.mark.xdist_group(__name__)
GROUP_COLUMNS = ("topic", "partition", "position", "end", "lag")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="no prometheus: apt-get install prometheus")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardSession]:
    with start_session(tmp_path_factory.mktemp("dashboards")) as started:
        yield started


class GroupRow(NamedTuple):
    """Row of a partition of a group: committed offset, end offset and lag."""

    topic: str
    partition: int
    position: int
    end: int
    lag: int


def read_offsets(pair: ToolPair, time_option: str) -> dict[str, float]:
    """Return the offsets that kafka-get-offsets prints, by topic and partition."""
    lines = pair.run_kafkas(f"kafka-get-offsets {{at}} --topic '{'|'.join(TOPICS)}' --time {time_option}").out
    rows = [line.split(":") for line in lines]
    return {f"{topic}-{partition}": float(offset) for topic, partition, offset in rows}


def read_partitions(pair: ToolPair) -> list[dict[str, str]]:
    """Return the partitions of all topics as kafka-topics describes them."""
    lines = pair.run_kafkas("kafka-topics {at} --describe").out
    return [dict(re.findall(r"(\w+): (\S+)", line)) for line in lines if "\tPartition: " in f"\t{line.strip()}"]


def read_group(pair: ToolPair) -> list[list[str]]:
    """Return the rows that kafka-consumer-groups prints: group, topic, partition, offset, end and lag first."""
    lines = pair.run_kafkas(f"kafka-consumer-groups {{at}} --describe --group {GROUP}").out
    return [line.split() for line in lines if line.startswith(f"{GROUP} ")]


def read_sizes(pair: ToolPair) -> dict[str, float]:
    """Return the sizes that kafka-log-dirs prints, by topic, partition and node."""
    lines = pair.run_kafkas(f"kafka-log-dirs {{at}} --describe --topic-list {','.join(TOPICS)}").out
    (content,) = [json.loads(line) for line in lines if line.startswith("{")]
    return {
        f"{partition['partition']}-ottla-{broker['broker']}": float(partition["size"])
        for broker in content["brokers"]
        for directory in broker["logDirs"]
        for partition in directory["partitions"]
    }


def expected_values(pair: ToolPair) -> dict[tuple[str, ...], dict[str, float]]:
    """Return the values that queries must have according to Kafka's tools, by query and labels of its samples."""
    partitions, group = read_partitions(pair), read_group(pair)
    ends = read_offsets(pair, "-1")
    at = ("topic", "partition")
    some = f'{{topic=~"{"|".join(TOPICS)}"}}'
    own = {f"{row['Topic']}-{row['Partition']}": row for row in partitions if row["Topic"] in TOPICS}
    assert len(ends) == len(own) == len(group) == 9
    return {
        ("count(kafka_server_replicamanager_leadercount)",): {"": 3},
        ("kafka_brokers",): {"": 3},
        ("sum(kafka_broker_info)",): {"": 3},
        ("sum(kafka_controller_kafkacontroller_activecontrollercount)",): {"": 1},
        ("sum(kafka_server_replicamanager_leadercount)",): {"": len(partitions)},
        ("sum(kafka_server_replicamanager_partitioncount)",): {
            "": sum(len(row["Replicas"].split(",")) for row in partitions)
        },
        ("sum(kafka_server_replicamanager_underreplicatedpartitions)",): {"": 0},
        ("max(kafka_controller_kafkacontroller_offlinepartitionscount)",): {"": 0},
        (f"kafka_topic_partition_current_offset{some}", *at): ends,
        (f"kafka_topic_partition_oldest_offset{some}", *at): read_offsets(pair, "-2"),
        (f"kafka_topic_partitions{some}", "topic"): dict.fromkeys(TOPICS, 3),
        (f"kafka_topic_partition_leader{some}", *at): {name: float(row["Leader"]) for name, row in own.items()},
        (f"kafka_topic_partition_replicas{some}", *at): dict.fromkeys(own, 3),
        (f"kafka_cluster_partition_replicascount{some}", *at): dict.fromkeys(own, 3),
        (f"kafka_topic_partition_in_sync_replica{some}", *at): {
            name: len(row["Isr"].split(",")) for name, row in own.items()
        },
        (f"sum(kafka_server_brokertopicmetrics_messagesin_total{some}) by (topic)", "topic"): {
            topic: sum(value for name, value in ends.items() if name.startswith(topic)) for topic in TOPICS
        },
        (f'kafka_consumergroup_current_offset{{consumergroup="{GROUP}"}}', *at): {
            f"{row[1]}-{row[2]}": float(row[3]) for row in group
        },
        (f'kafka_consumergroup_lag{{consumergroup="{GROUP}"}}', *at): {
            f"{row[1]}-{row[2]}": float(row[5]) for row in group
        },
        (f"kafka_log_log_size{some}", *at, "kubernetes_pod_name"): read_sizes(pair),
    }


def group_on_the_page(port: int) -> tuple[int, list[GroupRow]]:
    """Return the lag that the console shows for the group, and its rows of partitions."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/group?id={GROUP}", timeout=300) as response:
        page = response.read().decode().replace(",", "")
    total = re.findall(r"<dt>Lag</dt><dd>(\d+)</dd>", page)
    row = r'<tr><th scope="row"><a href="/topic[^>]*>([^<]+)</a></th>' + r'<td class="number">(\d+)</td>' * 4
    return int(total[0]), sorted(GroupRow(topic, *map(int, numbers)) for topic, *numbers in re.findall(row, page))


def group_of_the_command(bootstrap: str) -> list[GroupRow]:
    """Return the rows that ``ottla group describe`` prints."""
    done = run_command("group", "describe", GROUP, "-b", bootstrap, "-o", "json")
    assert done.status == 0, done.err
    (group,) = json.loads(done.out)
    return sorted(GroupRow(*(row[name] for name in GROUP_COLUMNS)) for row in group["positions"])


@needs_prometheus
def test_every_query_of_the_dashboard_returns_data(session: DashboardSession) -> None:
    dashboard = GrafanaDashboard(MONITORING / "grafana-dashboard.json")
    assert not session.without_data(["kafka_consumergroup_lag"])
    queries = session.dashboard_queries(dashboard)
    assert len(queries) > 30
    assert not [text for text in queries.values() if "$" in text]
    assert not session.without_data(queries.values())


@needs_prometheus
def test_names_of_strimzi_and_kafka_exporter_dashboards_return_data(session: DashboardSession) -> None:
    queries = [f"sum({name}{NODE_SELECTOR})" for name in (*STRIMZI_GAUGES, *KRAFT_GAUGES, *EXPORTER_GAUGES)]
    queries += [f"sum(irate({name}{NODE_SELECTOR}[5m])) by (topic)" for name in STRIMZI_COUNTERS]
    queries += [f"sum(irate({name}{NODE_SELECTOR}[5m])) by (kubernetes_pod_name) > 0" for name in KRAFT_COUNTERS]
    queries += [
        "count(kafka_server_raftmetrics_append_records_rate > 0) == 1",
        "count(kafka_server_raftmetrics_fetch_records_rate > 0) == 2",
        'sum(delta(kafka_consumergroup_current_offset{instance="ottla"}[5m])/5) by (consumergroup, topic)',
        'sum(rate(kafka_topic_partition_current_offset{instance="ottla"}[1m])) by (topic)',
    ]
    assert not session.without_data(queries)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus")
def test_promtool_accepts_alert_rules_and_documented_configurations(tmp_path: Path) -> None:
    rules = tmp_path / "alert-rules.yml"
    rules.write_text((MONITORING / "alert-rules.yml").read_text())
    for name in ("prometheus.yml", "prometheus-dashboards.yml"):
        (tmp_path / name).write_text(documented_text(name))
    for kind, file in (("rules", rules), *(("config", file) for file in tmp_path.glob("prometheus*.yml"))):
        done = subprocess.run(["promtool", "check", kind, str(file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


REMOTE = "kafka_server_brokertopicmetrics_remote"
NODE = 'job="ottla", instance="a"'


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus")
@pytest.mark.parametrize(
    ("series", "labels", "alert"),
    [
        ({f'{REMOTE}copyerrors_total{{{NODE}, topic=""}}': "0+1x60"}, {"severity": "critical"}, "RemoteCopyErrors"),
        ({f'{REMOTE}deleteerrors_total{{{NODE}, topic=""}}': "0+1x60"}, {"severity": "warning"}, "RemoteDeleteErrors"),
        ({f'{REMOTE}fetcherrors_total{{{NODE}, topic=""}}': "0+1x60"}, {"severity": "critical"}, "RemoteReadErrors"),
        (
            {
                f'{REMOTE}copylagsegments{{{NODE}, topic="t"}}': "1+1x60",
                f'{REMOTE}copylagbytes{{{NODE}, topic="t"}}': "9+9x60",
            },
            {"severity": "warning", "job": "ottla", "topic": "t"},
            "RemoteCopyLag",
        ),
        ({f'{REMOTE}copyerrors_total{{{NODE}, topic=""}}': "5+0x60"}, {}, "RemoteCopyErrors"),
        (
            {
                f'{REMOTE}copylagsegments{{{NODE}, topic="t"}}': "0 1 0 2 0 1 0 1 0 3x50",
                f'{REMOTE}copylagbytes{{{NODE}, topic="t"}}': "0 9 0 9 0 9 0 9 0 9x50",
            },
            {},
            "RemoteCopyLag",
        ),
    ],
)
def test_alerts_of_the_remote_store_fire_while_it_fails_or_copies_lag(
    series: dict[str, str], labels: dict[str, str], alert: str, tmp_path: Path
) -> None:
    rules = yaml.safe_load((MONITORING / "alert-rules.yml").read_text())
    (rule,) = (rule for rule in rules["groups"][0]["rules"] if rule["alert"] == f"Kafka{alert}")
    rule["annotations"] = {}
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [rule]}]}))
    expected = [{"exp_labels": {"instance": "a", **labels}}] if labels else []
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": "45m", "alertname": f"Kafka{alert}", "exp_alerts": expected}],
    }
    file = tmp_path / "case.yml"
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [case]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_values_in_prometheus_and_console_equal_those_of_kafkas_tools(session: DashboardSession) -> None:
    """The traffic ends here: values of both sides are of the same state."""
    assert not session.without_data([f'count(kafka_consumergroup_lag{{consumergroup="{GROUP}"}}) == 9'])
    session.traffic.stop()
    pair = ToolPair(session.cluster.node(1).port)
    try:
        expected = expected_values(pair)
        group = sorted(GroupRow(row[1], *map(int, row[2:6])) for row in read_group(pair))
    finally:
        pair.close()
    assert group_on_the_page(session.console_port) == (sum(row.lag for row in group), group)
    assert group_of_the_command(f"127.0.0.1:{session.cluster.node(1).port}") == group
    assert len({row.lag for row in group}) > 1, "rows must differ for a comparison of each"
    assert all(row for row in expected.values())
    deadline = time.monotonic() + VALUES_TIMEOUT_S
    differing = dict(expected)
    while differing and time.monotonic() < deadline:
        time.sleep(0.2)
        differing = {
            query: values for query, values in differing.items() if session.prometheus.values(*query) != values
        }
    assert not differing, {query: (values, session.prometheus.values(*query)) for query, values in differing.items()}


class FakeApi:
    """Query API with fixed answers."""

    def query(self, text: str) -> list[QuerySample]:
        name = text.partition("{")[0]
        return [QuerySample({"__name__": name, "namespace": "kafka", "pod": f"c-{n}"}, 1.0) for n in (1, 2)]

    def label_values(self, label: str, selector: str) -> list[str]:
        return [f"{label}+{selector}", "other"]


def test_variables_of_a_dashboard_have_values_as_in_grafana(tmp_path: Path) -> None:
    variables: list[dict[str, Any]] = [
        {"name": "source", "type": "datasource", "query": "prometheus"},
        {"name": "space", "type": "query", "query": "query_result(m)", "regex": '/.*namespace="([^"]*).*/'},
        {
            "name": "pod",
            "type": "query",
            "query": {"query": 'query_result(m{n="$space"})'},
            "regex": '/.*pod="(c-[^"]*).*/',
            "includeAll": True,
        },
        {"name": "all", "type": "query", "query": "label_values(m, l)", "includeAll": True, "allValue": ".*"},
        {"name": "first", "type": "query", "query": 'label_values(m{a="${space}",b="$pod"}, l)'},
        {"name": "none", "type": "query", "query": "query_result(m)", "regex": "/x=(.*)/"},
    ]
    panels = [{"title": "row", "panels": [{"title": "p", "targets": [{"expr": "rate(m[$__rate_interval])"}, {}]}]}]
    file = tmp_path / "d.json"
    file.write_text(json.dumps({"title": "t", "templating": {"list": variables}, "panels": panels}))
    dashboard = GrafanaDashboard(file)
    assert [*dashboard.queries()] == [PanelQuery("p", "rate(m[$__rate_interval])")]
    values = dashboard.variables(FakeApi())
    assert values.pop("__rate_interval") == "1m"
    assert {name: value for name, value in values.items() if not name.startswith("__")} == {
        "space": "kafka",
        "pod": r"(c\-1|c\-2)",
        "all": ".*",
        "first": r'l+m{a="kafka",b="(c\-1|c\-2)"}',
    }
