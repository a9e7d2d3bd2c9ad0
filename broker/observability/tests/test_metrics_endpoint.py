"""Metrics page: families, values and steps of its rendering."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from ottla.broker.config.limits import MAX_METRICS_PARTITIONS
from ottla.broker.observability import partition_metrics
from ottla.broker.observability.metric_families import COUNTER, FAMILIES, GAUGE, SECTIONS, SUMMARY
from ottla.broker.observability.metrics_builder import MetricsBuilder, labels
from ottla.broker.observability.partition_metrics import add_replica_metrics, add_traffic_metrics
from ottla.broker.observability.request_observers import PreparedRequestCounts
from ottla.broker.observability.tests.metrics_fixture import (
    MetricsEnv,
    MetricsReplicas,
    collect,
    collector,
    hosted,
    led,
    samples,
)
from ottla.broker.requests.peer import Peer
from ottla.broker.tests.connection_fixture import in_virtual_time
from ottla.env.env import ProcessStats
from ottla.jobs.job import Job, run_to_end
from ottla.jobs.time_slice import run_in_background
from ottla.wire.api_keys import ApiKey


def render(*arguments: Any, **options: Any) -> dict[str, float]:
    found: dict[str, float] = {}

    async def run() -> None:
        found.update(samples(b"".join(run_to_end(collector(*arguments, **options).render()))))

    in_virtual_time(run)
    return found


def test_broker_page_contains_log_replica_and_process_metrics() -> None:
    found = render()
    at = "{topic=b,partition=7}"
    assert found[f"kafka_log_log_size{at}"] == 17
    assert found[f"kafka_log_log_numlogsegments{at}"] == 3
    assert found[f"kafka_log_log_logstartoffset{at}"] == 107
    assert found[f"kafka_log_log_logendoffset{at}"] == 207
    expected = {
        "kafka_server_replicamanager_partitioncount": 5,
        "kafka_server_replicamanager_leadercount": 3,
        "kafka_server_replicamanager_underreplicatedpartitions": 2,
        "kafka_server_replicamanager_underminisrpartitioncount": 1,
        "kafka_server_replicamanager_atminisrpartitioncount": 1,
        "kafka_server_replicamanager_offlinereplicacount": 4,
        "kafka_server_replicamanager_isrexpands_total": 21,
        "kafka_server_replicamanager_isrshrinks_total": 22,
        "kafka_server_replicamanager_failedisrupdates_total": 23,
        "kafka_server_replicafetchermanager_maxlag": 30,
        "kafka_log_logmanager_offlinelogdirectorycount": 1,
        "kafka_log_logcleanermanager_uncleanable_partitions_count": 5,
        "kafka_server_kafkaserver_brokerstate": 3,
        "ottla_open_segments": 10,
        "ottla_cleaner_passes_total": 6,
        "ottla_cleaner_read_bytes_total": 70,
        "ottla_cleaner_written_bytes_total": 80,
        "ottla_scrub_segments_total": 9,
        "ottla_scrub_damage_total": 11,
        "process_cpu_seconds_total": 2.5,
        "process_resident_memory_bytes": 1000,
        "process_virtual_memory_bytes": 2000,
        "process_open_fds": 30,
        "process_max_fds": 40,
        "process_start_time_seconds": 1,
        "kafka_server_kafkaserver_linux_disk_read_bytes": 50,
        "kafka_server_kafkaserver_linux_disk_write_bytes": 60,
        "kafka_server_raftmetrics_current_state{current_state=follower}": 1,
        "kafka_server_raftmetrics_current_leader": 1,
        "kafka_server_raft_metrics_current_leader": 1,
    }
    assert {name: found[name] for name in expected} == expected


def test_page_includes_requests_that_connections_have_not_reported_yet() -> None:
    class CountingListener:
        """Listener with one connection, whose count of prepared requests is reported when it is asked to."""

        listener = "A"

        def __len__(self) -> int:
            return 1

        def report_prepared(self) -> Job[None]:
            yield None
            peer, counts = Peer("h", ("a", 1)), PreparedRequestCounts(ApiKey.PRODUCE, 3, 72, 27, 2.0)
            made._sources.request_metrics.answered_prepared(peer, counts)

    made = collector()
    made._sources.acceptors.append(CountingListener())  # type: ignore[attr-defined]
    found: dict[str, float] = {}

    async def run() -> None:
        found.update(samples(b"".join(run_to_end(made.render()))))

    in_virtual_time(run)
    assert found["kafka_network_requestmetrics_requests_total{request=Produce}"] == 3


def test_controller_page_contains_no_log_or_replica_metrics() -> None:
    found = render(is_broker=False)
    assert "kafka_server_raft_metrics_current_leader" in found
    assert not [name for name in found if name.startswith(("kafka_log", "kafka_server_replicamanager", "kafka_topic"))]


def test_led_partition_has_the_samples_of_exporters() -> None:
    page = MetricsBuilder()
    replicas: Any = hosted()
    found = collect(add_replica_metrics(page, replicas), page)
    for at, expected in (("{topic=a,partition=0}", (0, 0, 3, 0, 1)), ("{topic=b,partition=7}", (0, 1, 2, 1, 0))):
        assert expected == (
            found[f"kafka_cluster_partition_underminisr{at}"],
            found[f"kafka_cluster_partition_atminisr{at}"],
            found[f"kafka_topic_partition_in_sync_replica{at}"],
            found[f"kafka_topic_partition_under_replicated_partition{at}"],
            found[f"kafka_topic_partition_leader_is_preferred{at}"],
        )
        assert found[f"kafka_topic_partition_current_offset{at}"] == 150
        assert found[f"kafka_partition_latest_offset{at}"] == 150
        assert found[f"kafka_topic_partition_replicas{at}"] == 3
        assert found[f"kafka_cluster_partition_replicascount{at}"] == 3
    assert found["kafka_partition_earliest_offset{topic=b,partition=7}"] == 107
    assert "kafka_partition_latest_offset{topic=b,partition=0}" not in found, "another broker leads it"
    assert found["kafka_cluster_partition_underminisr{topic=a,partition=1}"] == 1
    assert found["kafka_topic_partitions{topic=a}"] == 2
    assert "kafka_topic_partitions{topic=b}" not in found, "another broker leads partition 0"
    assert "kafka_topic_partition_leader{topic=b,partition=0}" not in found


def test_traffic_of_all_topics_includes_removed_and_unknown_ones() -> None:
    replicas: Any = hosted()
    for number, (traffic, size) in enumerate(
        [(replicas.traffic["a"], 1), (replicas.traffic["b"], 20), (replicas.removed_traffic, 300)], 1
    ):
        traffic.bytes_in += size
        traffic.messages_in += number
        traffic.replication_bytes_in += size
    replicas.unknown_traffic.failed_produces = 7
    page = MetricsBuilder()
    found = collect(add_traffic_metrics(page, replicas), page)
    name = "kafka_server_brokertopicmetrics"
    assert [found[f"{name}_bytesin_total{at}"] for at in ("{topic=a}", "{topic=b}", "")] == [1, 20, 321]
    assert found[f"{name}_messagesin_total"] == 6
    assert found[f"{name}_failedproducerequests_total"] == 7
    assert found[f"{name}_replicationbytesin_total"] == 321


def test_partitions_beyond_the_limit_are_counted_without_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_metrics, "MAX_METRICS_PARTITIONS", 2)
    monkeypatch.setattr(partition_metrics, "MAX_METRICS_TOPICS", 1)
    found = render()
    assert found["ottla_metrics_omitted_partitions"] == 3
    assert found["kafka_server_replicamanager_leadercount"] == 3
    assert found["ottla_open_segments"] == 10
    assert [name for name in found if name.startswith(("kafka_log_log_size", "kafka_topic_partition_leader{"))] == [
        "kafka_log_log_size{topic=a,partition=0}",
        "kafka_log_log_size{topic=a,partition=1}",
        "kafka_topic_partition_leader{topic=a,partition=0}",
        "kafka_topic_partition_leader{topic=a,partition=1}",
    ]
    assert "kafka_server_brokertopicmetrics_bytesin_total{topic=b}" not in found
    assert MAX_METRICS_PARTITIONS >= 10_000


@pytest.mark.parametrize("count", [0, 1, 19, 20, 21, 40, 41])
def test_every_partition_has_its_samples_for_each_number_of_steps(count: int) -> None:
    replicas = MetricsReplicas()
    for number in range(count):
        replicas.host("t", number, led(1, 2))
    found = render(replicas)
    for name in ("kafka_log_log_size", "kafka_log_log_logendoffset", "kafka_topic_partition_current_offset"):
        rows = [key for key in found if key.startswith(f"{name}{{")]
        assert rows == [f"{name}{{topic=t,partition={number}}}" for number in range(count)]
    assert found["ottla_open_segments"] == 2 * count


def test_collection_of_many_partitions_yields_to_event_loop() -> None:
    turns = 0
    replicas = MetricsReplicas()
    env: Any = MetricsEnv()

    class SlowLog:
        """Log with a size that takes 0.05 ms to read."""

        topic, partition, log_start_offset, log_end_offset, segments = "t", 0, 0, 0, ()

        @property
        def size_bytes(self) -> int:
            env.work(0.05)
            return 1

    made = collector(replicas, env=env)
    made._sources.log_dirs.logs = lambda: [SlowLog()] * 1000  # type: ignore[assignment, method-assign, return-value]

    async def run() -> None:
        async def other() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await run_in_background(env, made.render())
            nursery.cancel_scope.cancel()

    in_virtual_time(run)
    assert 17 <= turns <= 30, "50 ms of work, 2 ms at a time as far as twenty logs fit in"


def test_idle_ratio_is_computed_from_cpu_time_between_two_scrapes() -> None:
    env: Any = MetricsEnv()

    async def run() -> None:
        made = collector(env=env)
        name = "kafka_network_socketserver_networkprocessoravgidle_percent"
        await trio.sleep(1)
        assert name not in samples(b"".join(run_to_end(made.render())))
        await trio.sleep(10)
        env.stats = ProcessStats(cpu_s=2.5 + 3)
        assert samples(b"".join(run_to_end(made.render())))[name] == pytest.approx(0.7)
        await trio.sleep(1)
        env.stats = ProcessStats(cpu_s=50)
        assert samples(b"".join(run_to_end(made.render())))[name] == 0

    in_virtual_time(run)


def test_label_values_are_escaped() -> None:
    page = MetricsBuilder()
    page.add("kafka_consumergroup_members", 1, labels(consumergroup='a"b\\c\nd\udc80'))
    text = b"".join(run_to_end(page.finish())).decode()
    assert text.endswith('kafka_consumergroup_members{consumergroup="a\\"b\\\\c\\nd?"} 1\n')


def test_metric_families_have_meaning_unit_and_name_of_their_kind() -> None:
    assert len(FAMILIES) == sum(len(section.families) for section in SECTIONS), "a name twice"
    for family in FAMILIES.values():
        assert family.kind in (GAUGE, COUNTER, SUMMARY)
        assert family.unit
        assert family.meaning[0].isupper() or family.meaning[0].isdigit()
        assert not family.meaning.endswith(".")
        assert (family.kind == COUNTER) == family.name.endswith("_total"), family.name


def test_sample_of_an_unknown_family_is_refused() -> None:
    with pytest.raises(KeyError):
        MetricsBuilder().add("ottla_unknown", 1)
