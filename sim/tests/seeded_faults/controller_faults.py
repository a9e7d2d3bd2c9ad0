"""Bugs planted in decisions of the controller, in its node's membership, and in coordinators that move."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from ottla.broker.coordinator.runtime import CoordinatorRuntime
from ottla.broker.coordinator.shard import Shard
from ottla.broker.groups import offset_commit
from ottla.controller.control import alter_partition, broker_heartbeat, broker_registration
from ottla.controller.control.broker_heartbeat_tracker import BrokerHeartbeatTracker
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata import image_builder
from ottla.controller.metadata_loader import MetadataLoader
from ottla.controller.partitions import partition_change_builder
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import metadata_records
from sim.tests.seeded_faults.seeding import patch


def _nothing(*_: Any, **__: Any) -> Generator[None, None, list[Any]]:
    yield
    return []


def keep_registering_broker_in_isr() -> None:
    """A broker that restarts stays in every in-sync set."""
    broker_registration.leader_and_isr_updates = _nothing


def elect_dead_broker() -> None:
    """The liveness of an elected leader is not checked."""
    patch(
        partition_change_builder._Candidates,
        "can_lead_cleanly",
        lambda _: lambda self, broker_id: broker_id in (self.isr or self.eligible),
    )


def never_fence() -> None:
    """Broker sessions never expire."""
    BrokerHeartbeatTracker.next_expired_broker = lambda *_: None  # type: ignore[method-assign]


def fence_without_electing() -> None:
    """A fenced broker keeps its leaderships."""

    def make(real: Any) -> Any:
        def transition(image: Any, static: Any, broker: Any, state: Any) -> Any:
            if state is broker_heartbeat.BrokerControlState.FENCED:
                return [
                    metadata_records.BrokerRegistrationChangeRecord(broker.broker_id, broker.broker_epoch, fenced=1)
                ]
            return (yield from real(image, static, broker, state))

        return transition

    patch(broker_heartbeat, "_transition", make)


def keep_the_leader_epoch() -> None:
    """A new leader keeps the leader epoch of the old one."""

    def make(real: Any) -> Any:
        return lambda old, record: dataclasses.replace(real(old, record), leader_epoch=old.leader_epoch)

    patch(image_builder, "merge_partition_change", make)
    patch(alter_partition, "merge_partition_change", make)


def publish_before_commit() -> None:
    """The controller publishes appended records before they are committed."""

    async def committed(*_: Any) -> None:
        pass

    RaftDriver.wait_committed = committed  # type: ignore[method-assign]


def keep_uncommitted_records() -> None:
    """A controller that loses its leadership keeps uncommitted records."""
    ControllerStateMachine.revert = lambda _: None  # type: ignore[method-assign]


def replay_uncommitted_records() -> None:
    """A follower of the quorum replays all records of its log, committed or not."""

    def make(real: Any) -> Any:
        def catch_up(self: MetadataLoader, end_offset: int) -> Any:
            return real(self, self._store.log.log_end_offset)

        return catch_up

    patch(MetadataLoader, "catch_up", make)


def accept_stale_alter_partition() -> None:
    """AlterPartition is accepted without any check of its partitions, that of the partition epoch among them."""
    alter_partition._error = lambda *_: ErrorCode.NONE


def reuse_producer_ids() -> None:
    """Each broker gets the same producer ids."""

    def make(real: Any) -> Any:
        def allocate(image: Any, request: Any) -> Any:
            given = real(image, request)
            given.response.producer_id_start = 0
            return given

        return allocate

    patch(broker_registration, "allocate_producer_ids", make)


def skip_loading_coordinator() -> None:
    """A coordinator that moved starts without loading its partition."""

    def begin(self: CoordinatorRuntime[Any], replica: Any) -> None:
        again = lambda: self._restart_shard(replica)  # noqa: E731
        shard = Shard(self._dependencies, replica, self._machine_of(), self._serde, again)
        self._shards[replica.partition] = shard
        list(shard.activate(replica.log.log_end_offset))

    CoordinatorRuntime._start_shard = begin  # type: ignore[method-assign]


def respond_before_commit() -> None:
    """A coordinator responds after the append, before the commit."""
    Shard.is_committed = property(lambda _: True)  # type: ignore[assignment,method-assign]


def keep_stale_shard() -> None:
    """A coordinator that lost and regained its partition keeps its old state."""
    CoordinatorRuntime.on_resignation = lambda *_: None  # type: ignore[method-assign]


def skip_member_check_on_commit() -> None:
    """An offset commit is accepted without a check of its member."""
    offset_commit.validate_offset_commit = lambda *_, **__: None
