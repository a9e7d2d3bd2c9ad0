"""A new quorum out of one controller's directory, where the majority of the old one is gone for good. Offline.

The replica that is left says in its log, under a new epoch, that it alone decides; started, it elects itself and counts
all it has as committed. What the others had decided and it had not heard of never happened. Kafka has no such tool; it
writes what a leader writes that removes the other voters (KIP-853), but for the majority that would commit it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.controller.control.broker_heartbeat import fence_broker
from ottla.controller.control.controller_result import ControllerDefaults
from ottla.controller.controller_state_machine import ControllerStateMachine
from ottla.controller.metadata.record_serde import (
    METADATA_VERSION,
    NEWEST_METADATA_VERSION,
    MetadataBatchWriter,
    decode_batch,
)
from ottla.controller.raft.state_machine.events import HardState, LogAppend
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.jobs.job import run_to_end
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.messages.control_records import VotersRecord, VotersRecordVoter

RECORDS_PER_BATCH = 500


class QuorumRecoveryError(Exception):
    """The directory cannot become a quorum of its own; the message is one line for the user. Nothing was changed."""


class QuorumRecoveryPreview(NamedTuple):
    """What would become of a cluster."""

    node_id: int
    lost_voters: tuple[int, ...]
    end_offset: int
    """The first offset of the metadata log that is not here."""
    epoch: int
    last_timestamp_ms: int
    """When the last record that is here was written."""
    in_sync_count: int
    """Partitions this node goes on with: it is in sync, as far as it knows."""
    out_of_sync_partitions: tuple[str, ...]
    """Partitions of which it has a copy that was not in sync when it last heard."""
    partitions_without_copy: tuple[str, ...]
    """Partitions it has no copy of."""


def _own_entry(store: MetadataStore) -> VotersRecordVoter:
    told = store.quorum_records.voters
    if told is None or store.kraft_version < 1:
        raise QuorumRecoveryError(
            "who decides is fixed by configuration here (kraft.version 0): "
            "start the node with controller.quorum.voters naming it alone"
        )
    mine = [v for v in told.voters if (v.voter_id, v.voter_directory_id) == store.local_replica]
    if not mine:
        raise QuorumRecoveryError(f"node {store.local_replica.id} is none of the controllers that decide: {_ids(told)}")
    if len(told.voters) == 1:
        raise QuorumRecoveryError(
            f"node {store.local_replica.id} is the only controller that decides: start it as it is"
        )
    return mine[0]


def _ids(told: VotersRecord) -> list[int]:
    return sorted(v.voter_id for v in told.voters)


def _machine(store: MetadataStore) -> ControllerStateMachine:
    """Everything in snapshot and log, committed or not."""
    machine = ControllerStateMachine(ControllerDefaults(), lambda: ZERO_UUID, store.local_replica.id)
    for record in store.snapshot.records:
        machine.replay(-1, record)
    begin, end = store.snapshot_id.end_offset, store.log.log_end_offset
    for header, raw in store.committed_batches(begin, end):
        for offset, record in decode_batch(header, raw):
            if offset >= begin:
                machine.replay(offset, record)
    run_to_end(machine.complete_append(end - 1, 0))
    return machine


def preview_recovery(store: MetadataStore) -> QuorumRecoveryPreview:
    """Look, and change nothing.

    Raises:
        QuorumRecoveryError: it is no controller that decides, or the only one, or those are no records.
        WireError: the log is damaged.
    """
    _own_entry(store)
    me, image, told = store.local_replica.id, _machine(store).latest_image, store.quorum_records.voters
    assert told is not None
    led = 0
    behind: list[str] = []
    elsewhere: list[str] = []
    for name in sorted(image.topics):
        for number, p in image.topics[name].partitions.items():
            if me in p.isr:
                led += 1
            else:
                (behind if me in p.replicas else elsewhere).append(f"{name}:{number}")
    return QuorumRecoveryPreview(
        me,
        tuple(i for i in _ids(told) if i != me),
        store.log.log_end_offset,
        max(store.persisted_hard_state.epoch, store.log_summary().last_epoch),
        store.last_timestamp_ms,
        led,
        tuple(behind),
        tuple(elsewhere),
    )


def recover_quorum(store: MetadataStore, static: Mapping[str, str], now_ms: int) -> int:
    """Make this replica a quorum of its own, on disk when it returns; gives the epoch it says so under.

    Brokers on the nodes of the other controllers are fenced, as if they had been silent: what they led is led by who is
    left and in sync. The epoch is written first: broken off in between, this may be run again. ``static``: what was
    set in the node's configuration.

    Raises:
        QuorumRecoveryError: as `preview_recovery`. WireError: the log is damaged. OSError: the disk failed.
    """
    mine, told = _own_entry(store), store.quorum_records.voters
    assert told is not None
    machine = _machine(store)
    epoch = max(store.persisted_hard_state.epoch, store.log_summary().last_epoch) + 1
    store.prepare_state_write(HardState(epoch), VoterSetHistory([store.local_replica], None))()
    for lost in _ids(told):
        broker = machine.latest_image.brokers.get(lost)
        if lost != store.local_replica.id and broker is not None and not broker.fenced:
            _append(store, machine, run_to_end(fence_broker(machine.latest_image, lost, static)).records, epoch, now_ms)
    alone = VotersRecord(told.version, [mine])
    store.append(LogAppend(store.log.log_end_offset, 1, epoch, controls=(alone,)), now_ms)
    job = store.prepare_flush()
    job()
    store.complete_flush(job)
    return epoch


def _append(
    store: MetadataStore, machine: ControllerStateMachine, records: Sequence[Message], epoch: int, now_ms: int
) -> None:
    """Records that follow from what is there already, a batch of so many at a time."""
    level = machine.latest_image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
    for first in range(0, len(records), RECORDS_PER_BATCH):
        writer, offset = MetadataBatchWriter(now_ms), store.log.log_end_offset
        for number, record in enumerate(records[first : first + RECORDS_PER_BATCH]):
            writer.add_message(record, level)
            machine.replay(offset + number, record)
        store.append(LogAppend(offset, writer.count, epoch, batch=writer.build()), now_ms)
    run_to_end(machine.complete_append(store.log.log_end_offset - 1, epoch))
