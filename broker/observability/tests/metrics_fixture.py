"""Parts of a node from which metrics are collected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from ottla.broker.coordinator.shard_state import CoordinatorState
from ottla.broker.groups.committed_offsets import CommittedOffsets
from ottla.broker.metadata.broker_lifecycle import BrokerState
from ottla.broker.observability.election_metrics import LeaderElectionCounter
from ottla.broker.observability.metrics_builder import MetricsBuilder
from ottla.broker.observability.metrics_endpoint import MetricsCollector, MetricSources
from ottla.broker.observability.raft_metrics import RaftMetrics
from ottla.broker.observability.request_metrics import RequestMetrics
from ottla.broker.replication.hosted_partition import TopicTraffic
from ottla.broker.replication.partition_state import CommittedIsr, FollowerReplica, FollowerState, LeaderState
from ottla.broker.tests.connection_fixture import ConnectionEnv
from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState
from ottla.controller.raft.state_machine.events import HardState, ReplicaKey
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory
from ottla.env.env import ProcessStats
from ottla.jobs.job import Job, run_to_end

Samples = dict[str, float]


def samples(page: bytes) -> Samples:
    """Return the samples of a page by name with labels, parsed by a library other than ours."""
    found: Samples = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            at = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            key = f"{sample.name}{{{at}}}" if at else sample.name
            assert key not in found, f"sample twice: {key}"
            found[key] = sample.value
    return found


def collect(job: Job[Any], page: MetricsBuilder) -> Samples:
    """Run a collector to its end and return what it has added."""
    run_to_end(job)
    return samples(b"".join(run_to_end(page.finish())))


class MetricsEnv(ConnectionEnv):
    """`Env` with the process statistics of a test."""

    stats = ProcessStats(2.5, 1000, 2000, 30, 40, 1.0, 50, 60)

    def process_stats(self) -> ProcessStats:
        return self.stats


def log(topic: str, number: int, high_watermark: int = 150) -> Any:
    return SimpleNamespace(
        topic=topic,
        partition=number,
        size_bytes=10 + number,
        log_start_offset=100 + number,
        log_end_offset=200 + number,
        high_watermark=high_watermark,
        segments=[SimpleNamespace(is_open=is_open) for is_open in (True, False, True)],
        config=SimpleNamespace(min_insync_replicas=2),
    )


def led(*isr: int) -> LeaderState:
    """Return the state of a leader with three replicas."""
    return LeaderState(1, 3, 0, CommittedIsr(isr), 0, {2: FollowerReplica(), 3: FollowerReplica()})


FOLLOWS = FollowerState(3, 2)


class MetricsReplicas(dict[tuple[str, int], Any]):
    """Hosted partitions, and traffic of their topics."""

    offline_partitions = (1, 2, 3, 4)
    isr_expands, isr_shrinks, isr_failures = 21, 22, 23

    def __init__(self) -> None:
        super().__init__()
        self.image = SimpleNamespace(topics={})
        self.traffic: dict[str, TopicTraffic] = {}
        self.removed_traffic, self.unknown_traffic = TopicTraffic(), TopicTraffic()

    def host(self, topic: str, number: int, state: Any, lag: int = 0, leader: int = 1) -> None:
        where = SimpleNamespace(topic=topic, partition=number, state=state, lag=lag, log=log(topic, number))
        self[topic, number] = where
        self.traffic.setdefault(topic, TopicTraffic())
        known = self.image.topics.setdefault(topic, SimpleNamespace(partitions={}))
        known.partitions[number] = SimpleNamespace(leader=leader, replicas=(1, 2, 3))

    def get(self, topic: Any, number: Any = None) -> Any:
        return dict.get(self, (topic, number))

    def __iter__(self) -> Any:
        return iter(list(self.values()))


def hosted() -> MetricsReplicas:
    """Return three led partitions and two follower partitions."""
    replicas = MetricsReplicas()
    replicas.host("a", 0, led(1, 2, 3))
    replicas.host("a", 1, led(1))
    replicas.host("b", 7, led(1, 3), leader=3)
    replicas.host("b", 0, FOLLOWS, 30)
    replicas.host("b", 1, FOLLOWS, 4)
    return replicas


def shard_of_groups(offsets: dict[str, dict[str, dict[int, int]]], **groups: Any) -> Any:
    """Return a shard with committed offsets, and with groups by type."""
    stored = CommittedOffsets()
    for group, topics in offsets.items():
        for topic, partitions in topics.items():
            for partition, offset in partitions.items():
                raw = offset.to_bytes(8, "big") + bytes(44)
                stored._store(group, topic, partition, raw)
    kinds = {name: groups.get(name, []) for name in ("consumer", "share", "streams")}
    classic = SimpleNamespace(groups={group.id: group for group in groups.get("classic", [])})
    lists = {f"list_{name}_groups": lambda rows=rows: rows for name, rows in kinds.items()}
    return SimpleNamespace(
        state=CoordinatorState.ACTIVE, machine=SimpleNamespace(offsets=stored, classic_groups=classic, **lists)
    )


def raft() -> Any:
    """Return the Raft state of node 2, which follows node 1."""
    return SimpleNamespace(
        local_replica=ReplicaKey(2),
        state=RaftFollowerState(1, 0),
        voters=VoterSetHistory([ReplicaKey(1), ReplicaKey(2)]),
        hard_state=HardState(7, 1, ReplicaKey(3)),
        log_summary=SimpleNamespace(end_offset=90, last_epoch=6),
        leader_id=1,
        epoch=7,
        high_watermark=80,
    )


def collector(
    replicas: MetricsReplicas | None = None, *, is_broker: bool = True, env: Any = None, shards: Any = ()
) -> MetricsCollector:
    replicas = hosted() if replicas is None else replicas
    sources: Any = MetricSources(
        SimpleNamespace(logs=lambda: [each.log for each in replicas], offline=["/data"]),  # type: ignore[arg-type]
        replicas,  # type: ignore[arg-type]
        SimpleNamespace(uncleanable_count=5, passes=6, bytes_read=70, bytes_written=80),  # type: ignore[arg-type]
        SimpleNamespace(segments_read=9, damage_count=11),  # type: ignore[arg-type]
        RequestMetrics(lambda: 0.0),
        [],
        SimpleNamespace(raft=raft()),
        is_broker,
        False,
        lambda: BrokerState.RUNNING,
        lambda: shards,
        tuple,
        LeaderElectionCounter(),
        RaftMetrics(SimpleNamespace(traffic=None), 0.0),  # type: ignore[arg-type]
    )
    return MetricsCollector(MetricsEnv() if env is None else env, sources)
