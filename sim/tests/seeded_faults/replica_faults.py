"""Bugs planted between a partition's replicas, and in their treatment by a node."""

from __future__ import annotations

import dataclasses
from typing import Any

from ottla.broker.handlers.produce import produce_acks
from ottla.broker.replication.fetcher import fetch_state, replica_fetcher
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.log_creator import LogCreator
from ottla.broker.replication.partition_state import (
    CommittedIsr,
    FollowerReplica,
    LeaderState,
    PendingExpandIsr,
    PendingShrinkIsr,
)
from ottla.controller.metadata.directory_id import MIGRATING, UNASSIGNED, directory_id_of
from ottla.controller.partitions import leader_and_isr_updates
from ottla.log.checkpoints.leader_epoch_cache import LeaderEpochFileCache
from ottla.log.partition_log import PartitionLog
from ottla.log.producers.producer_state_manager import ProducerStateManager
from ottla.log.recovery import log_loader
from sim.tests.seeded_faults.seeding import patch


def commit_at_leader_end() -> None:
    """The high watermark is the leader's own log end offset."""
    patch(LeaderState, "high_watermark", lambda _: lambda self, own_end, *rest: own_end)


def skip_isr_catch_up_check() -> None:
    """A follower joins the ISR with any log end offset."""

    def expand(self: LeaderState, broker: int, high_watermark: int, eligible: Any) -> Any:
        if not isinstance(self.isr, CommittedIsr) or broker not in self.followers or broker in self.isr.isr:
            return None
        self.isr = PendingExpandIsr(self.isr, broker)
        return self._isr_change(self.isr.requested_isr)

    LeaderState.maybe_expand_isr = expand  # type: ignore[method-assign]


def count_only_remaining_replicas() -> None:
    """During a shrink of the ISR only the remaining replicas count."""
    PendingShrinkIsr.maximal_isr = property(lambda self: self.requested_isr)  # type: ignore[assignment,method-assign]


def commit_with_too_few() -> None:
    """Acknowledgement and high watermark ignore min.insync.replicas."""
    LeaderState.is_under_min_isr = lambda *_: False  # type: ignore[method-assign]
    LeaderState.has_enough_replicas = lambda *_: True  # type: ignore[method-assign]


def skip_follower_truncation() -> None:
    """A follower never truncates its log."""
    replica_fetcher.ReplicaFetcher._truncate = lambda *_: None  # type: ignore[method-assign]


def truncate_too_little() -> None:
    """A diverged log is truncated above its point of divergence."""
    patch(
        fetch_state,
        "compute_truncation",
        lambda real: lambda epoch, end, own, log_end: real(epoch, end, own, log_end)._replace(offset=log_end),
    )
    replica_fetcher.compute_truncation = fetch_state.compute_truncation  # type: ignore[attr-defined]


def cut_to_the_high_watermark() -> None:
    """A follower truncates to its own high watermark when the leader changes (before KIP-101)."""

    def make(real: Any) -> Any:
        def follow(self: replica_fetcher.ReplicaFetcher, replica: HostedPartition, leader_epoch: int) -> None:
            if replica.log.log_end_offset > replica.log.high_watermark:
                replica.log.truncate_to(replica.log.high_watermark, 0)
            real(self, replica, leader_epoch)

        return follow

    patch(replica_fetcher.ReplicaFetcher, "add_partition", make)


def elect_unclean_leader() -> None:
    """Leaders are elected from all live replicas."""
    patch(leader_and_isr_updates, "topic_change_rules", lambda real: lambda *rest: _unclean(real(*rest)))


def _unclean(rules: Any) -> Any:
    return dataclasses.replace(rules, allows_unclean_election=True)


def forget_producers_of_followers() -> None:
    """A follower keeps no producer state, so a new leader has none."""

    def make(real: Any) -> Any:
        def append(self: PartitionLog, *rest: Any) -> Any:
            out = real(self, *rest)
            self.producers = ProducerStateManager()
            return out

        return append

    patch(PartitionLog, "append_as_follower", make)


def forget_producers() -> None:
    """Producer state is empty after a start."""
    log_loader.rebuild_producer_state = lambda *_: ProducerStateManager()


def acknowledge_at_the_append() -> None:
    """A batch is acknowledged after the append to the leader."""
    produce_acks.DelayedProduce.is_completed = property(lambda _: True)  # type: ignore[assignment,method-assign]


def serve_uncommitted_records() -> None:
    """Consumers read up to the log end offset."""
    patch(
        PartitionLog,
        "read",
        lambda real: lambda self, offset, most, upper, **more: real(self, offset, most, self.log_end_offset, **more),
    )


def trust_isr_at_election() -> None:
    """A new leader assumes that all replicas of the ISR have its log end offset."""

    def make(real: Any) -> Any:
        def begin(
            cls: Any, local: int, epoch: int, registration: int, replicas: Any, isr: Any, end: int, now: int
        ) -> LeaderState:
            made: LeaderState = real(local, epoch, registration, replicas, isr, end, now)
            for broker in made.followers:
                if broker in isr.isr:
                    made.followers[broker] = FollowerReplica(end_offset=end, caught_up_ms=now)
            return made

        return classmethod(begin)

    patch(LeaderState, "start_epoch", make)


def never_expand() -> None:
    """A replica that left the ISR never joins again."""
    LeaderState.maybe_expand_isr = lambda *_: None  # type: ignore[method-assign]


def join_before_the_epoch_began() -> None:
    """A follower joins at the high watermark, below the start of the leader's epoch."""

    def make(real: Any) -> Any:
        def expand(self: LeaderState, *rest: Any) -> Any:
            began, self.leader_epoch_start_offset = self.leader_epoch_start_offset, 0
            try:
                return real(self, *rest)
            finally:
                self.leader_epoch_start_offset = began

        return expand

    patch(LeaderState, "maybe_expand_isr", make)


def keep_epochs_that_were_cut() -> None:
    """Leader epochs in the cache go beyond the log end."""
    LeaderEpochFileCache.truncate_from_end = lambda *_, **__: None  # type: ignore[method-assign]


def remember_producers_that_were_cut() -> None:
    """A truncation leaves the producer state unchanged."""

    def make(real: Any) -> Any:
        def truncate(self: PartitionLog, *rest: Any) -> int:
            producers = self.producers
            end: int = real(self, *rest)
            self.producers = producers
            return end

        return truncate

    patch(PartitionLog, "truncate_to", make)


def commit_all_records_of_a_follower() -> None:
    """A follower counts all its records as committed."""
    patch(
        HostedPartition,
        "update_leader_offsets",
        lambda real: lambda self, high, start: real(self, max(high, self.log.log_end_offset), start),
    )


def write_previous_leader_epoch() -> None:
    """A leader writes with the epoch before its own."""
    patch(
        PartitionLog,
        "append_as_leader",
        lambda real: lambda self, data, epoch, *rest, **more: real(self, data, max(epoch - 1, 0), *rest, **more),
    )


def leave_a_replaced_disk_empty() -> None:
    """Replicas of a lost disk are not restored."""

    def is_out_of_reach(self: LogCreator, at: Any, registration: Any) -> bool:
        place = directory_id_of(registration, self._config.node_id)
        return place not in (MIGRATING, UNASSIGNED) and all(d.id != place for d in self._log_dirs.online)

    LogCreator._may_be_in_unavailable_directory = is_out_of_reach  # type: ignore[method-assign]


def ignore_leader_change() -> None:
    """A new leader in the metadata is ignored."""

    def make(real: Any) -> Any:
        def follow_image(self: HostedPartition, node_id: int, registration: Any, now_ms: int) -> bool:
            if self.is_leader and registration.leader not in (node_id, -1):
                return False
            return bool(real(self, node_id, registration, now_ms))

        return follow_image

    patch(HostedPartition, "apply_partition_state", make)
