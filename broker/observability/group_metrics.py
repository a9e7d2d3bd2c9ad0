"""Samples of the groups that a broker coordinates, for the metrics page.

The lag of a partition is exported if the coordinator has a replica of it. For other partitions only the committed
offset is exported: `kafka_topic_partition_current_offset` of the leader minus this offset is the lag.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.broker.config.limits import MAX_METRICS_GROUP_OFFSETS
from ottla.broker.coordinator.shard_state import CoordinatorState
from ottla.broker.groups.committed_offsets import unpack_offset
from ottla.broker.observability.metrics_builder import MetricsBuilder, escape_label, labels
from ottla.broker.replication.replica_manager import ReplicaManager
from ottla.jobs.job import Job

if TYPE_CHECKING:
    from ottla.broker.coordinator.shard import Shard
    from ottla.broker.groups.state_machine import GroupStateMachine

MAX_GROUP_ID_CHARS = 249
"""Maximum length of an exported group id; longer ids are omitted, as shortened ones could collide."""
OFFSETS_PER_STEP = 20


def active_machines(shards: Iterable[Shard[Any]]) -> Iterator[Any]:
    """Yield the state machines of the coordinator shards (partitions) that are loaded."""
    return (shard.machine for shard in list(shards) if shard.state is CoordinatorState.ACTIVE)


def _groups(machine: GroupStateMachine) -> Iterator[tuple[str, Any]]:
    """Yield (type, group) for each classic, consumer, share and streams group of a coordinator partition.

    A group that has only committed offsets is not yielded.
    """
    yield from (("classic", group) for group in list(machine.classic_groups.groups.values()))
    yield from (("consumer", group) for group in machine.list_consumer_groups())
    yield from (("share", group) for group in machine.list_share_groups())
    yield from (("streams", group) for group in machine.list_streams_groups())


class GroupMetricsCollector:
    """Collector of the samples of all groups of this coordinator for one scrape of the metrics page."""

    def __init__(self, page: MetricsBuilder, replicas: ReplicaManager) -> None:
        self._page = page
        self._replicas = replicas
        self._groups: Counter[tuple[str, str]] = Counter()
        self._offset_count = self._exported = 0

    def collect(self, shards: Iterable[Shard[Any]]) -> Job[None]:
        """Add the samples of the groups of all loaded shards to the metrics page, as a job.

        All groups are counted; at most `MAX_METRICS_GROUP_OFFSETS` groups, and as many committed offsets, get samples
        of their own.
        """
        for machine in active_machines(shards):
            for kind, group in _groups(machine):
                state = group.state
                self._groups[kind, getattr(state, "value", state)] += 1
                if len(group.id) <= MAX_GROUP_ID_CHARS and sum(self._groups.values()) <= MAX_METRICS_GROUP_OFFSETS:
                    self._page.add("kafka_consumergroup_members", len(group.members), labels(consumergroup=group.id))
                yield None
            for group_id in machine.offsets.groups():
                yield from self._collect_offsets(group_id, machine.offsets.group_offsets(group_id))
                self._page.encode()
        self._add_counts()

    def _add_counts(self) -> None:
        for (kind, state), count in self._groups.items():
            self._page.add("ottla_groups", count, labels(type=kind, state=state))
        name = "kafka_coordinator_group_groupmetadatamanager"
        self._page.add(f"{name}_numgroups", sum(self._groups.values()))
        self._page.add(f"{name}_numoffsets", self._offset_count)
        self._page.add("ottla_metrics_omitted_group_offsets", self._offset_count - self._exported)

    def _collect_offsets(self, group_id: str, topics: Mapping[str, Mapping[int, bytes]]) -> Job[None]:
        """Add the samples of one group's committed offsets, by topic and partition, as a job.

        All are omitted if the group id is too long, or if they would exceed `MAX_METRICS_GROUP_OFFSETS`.
        """
        size = sum(len(partitions) for partitions in topics.values())
        self._offset_count += size
        if len(group_id) > MAX_GROUP_ID_CHARS or self._exported + size > MAX_METRICS_GROUP_OFFSETS:
            yield None
            return
        self._exported += size
        group = escape_label(group_id)
        lags: list[int] = []
        for topic, partitions in list(topics.items()):
            offset_sum, topic_lags = 0, []
            for number, (partition, raw) in enumerate(list(partitions.items()), 1):
                offset = unpack_offset(raw).offset
                offset_sum += offset
                at = f'topic="{topic}",partition="{partition}"}}'
                self._page.add("kafka_consumergroup_current_offset", offset, f'{{consumergroup="{group}",{at}')
                self._page.add("kafka_consumergroup_group_offset", offset, f'{{group="{group}",{at}')
                replica = self._replicas.get(topic, partition)
                if replica is not None:
                    lag = max(replica.log.high_watermark - offset, 0)
                    topic_lags.append(lag)
                    self._page.add("kafka_consumergroup_lag", lag, f'{{consumergroup="{group}",{at}')
                    self._page.add("kafka_consumergroup_group_lag", lag, f'{{group="{group}",{at}')
                if number % OFFSETS_PER_STEP == 0:
                    yield None
            at = f'{{consumergroup="{group}",topic="{topic}"}}'
            self._page.add("kafka_consumergroup_current_offset_sum", offset_sum, at)
            if topic_lags:
                self._page.add("kafka_consumergroup_lag_sum", sum(topic_lags), at)
                at = f'{{group="{group}",topic="{topic}"}}'
                self._page.add("kafka_consumergroup_group_topic_sum_lag", sum(topic_lags), at)
            lags += topic_lags
            yield None
        if lags:
            self._page.add("kafka_consumergroup_group_max_lag", max(lags), f'{{group="{group}"}}')
            self._page.add("kafka_consumergroup_group_sum_lag", sum(lags), f'{{group="{group}"}}')
