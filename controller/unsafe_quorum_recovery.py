"""Recovery of a quorum from one stopped controller's directory after a permanent loss of the majority.

The remaining replica becomes the only voter by a record in a new epoch; after its start it elects itself and commits
its whole log. Records of the others that it had not received are lost. Kafka has no such tool; it writes the records of
a leader that removes the other voters (KIP-853), without the majority that would commit them.
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
    """Directory cannot become a quorum of its own, and is unchanged; the message is one line for the user."""


class QuorumRecoveryPreview(NamedTuple):
    """Preview of a recovery: voters that are lost, end of the log, and the partitions by their local replica."""

    node_id: int
    lost_voters: tuple[int, ...]
    end_offset: int
    """End offset of this node's metadata log."""
    epoch: int
    last_timestamp_ms: int
    """Timestamp of the last record in ms."""
    in_sync_count: int
    """Number of partitions with this node in the ISR of its last records: they stay available."""
    out_of_sync_partitions: tuple[str, ...]
    """Partitions (TOPIC:NUMBER) with a replica on this node that is not in the ISR of its last records."""
    partitions_without_copy: tuple[str, ...]
    """Partitions (TOPIC:NUMBER) without a replica on this node."""


def _own_entry(store: MetadataStore) -> VotersRecordVoter:
    voters_record = store.quorum_records.voters
    if voters_record is None or store.kraft_version < 1:
        raise QuorumRecoveryError(
            "the voters are static (kraft.version 0): "
            "start the node with controller.quorum.voters set to this node only"
        )
    mine = [v for v in voters_record.voters if (v.voter_id, v.voter_directory_id) == store.local_replica]
    if not mine:
        raise QuorumRecoveryError(f"node {store.local_replica.id} is not one of the voters {_ids(voters_record)}")
    if len(voters_record.voters) == 1:
        raise QuorumRecoveryError(f"node {store.local_replica.id} is the only voter: no recovery is needed")
    return mine[0]


def _ids(voters: VotersRecord) -> list[int]:
    return sorted(v.voter_id for v in voters.voters)


def _machine(store: MetadataStore) -> ControllerStateMachine:
    """Return a new state machine with all records of snapshot and log of the store replayed, committed or not."""
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
    """Return what `recover_quorum` would lose and keep; nothing is changed.

    Raises:
        QuorumRecoveryError: this node is no voter, or the only voter, or the voters are static.
        WireError: the log is damaged.
    """
    _own_entry(store)
    me, image, voters_record = store.local_replica.id, _machine(store).latest_image, store.quorum_records.voters
    assert voters_record is not None
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
        tuple(i for i in _ids(voters_record) if i != me),
        store.log.log_end_offset,
        max(store.persisted_hard_state.epoch, store.log_summary().last_epoch),
        store.last_timestamp_ms,
        led,
        tuple(behind),
        tuple(elsewhere),
    )


def recover_quorum(store: MetadataStore, static: Mapping[str, str], now_ms: int) -> int:
    """Make this replica the only voter, durably; return the epoch of the records written for it.

    Brokers on the nodes of the other controllers are fenced, as after an expired session: partitions that they lead get
    leaders among the remaining in-sync replicas, or none. The epoch is written first, so that an interrupted recovery
    can be repeated.
    ``static``: settings of the node's configuration. ``now_ms``: wall clock.

    Raises:
        QuorumRecoveryError: as `preview_recovery`; nothing is changed.
        WireError: the log is damaged.
        OSError: the disk failed; the recovery can be repeated.
    """
    mine, voters_record = _own_entry(store), store.quorum_records.voters
    assert voters_record is not None
    machine = _machine(store)
    epoch = max(store.persisted_hard_state.epoch, store.log_summary().last_epoch) + 1
    store.prepare_state_write(HardState(epoch), VoterSetHistory([store.local_replica], None))()
    for lost in _ids(voters_record):
        broker = machine.latest_image.brokers.get(lost)
        if lost != store.local_replica.id and broker is not None and not broker.fenced:
            _append(store, machine, run_to_end(fence_broker(machine.latest_image, lost, static)).records, epoch, now_ms)
    alone = VotersRecord(voters_record.version, [mine])
    store.append(LogAppend(store.log.log_end_offset, 1, epoch, controls=(alone,)), now_ms)
    job = store.prepare_flush()
    job()
    store.complete_flush(job)
    return epoch


def _append(
    store: MetadataStore, machine: ControllerStateMachine, records: Sequence[Message], epoch: int, now_ms: int
) -> None:
    """Append metadata records of ``epoch`` to the log, unsynced, and replay them, in batches of `RECORDS_PER_BATCH`.

    ``now_ms``: wall clock, timestamp of the records.
    """
    level = machine.latest_image.features.get(METADATA_VERSION, NEWEST_METADATA_VERSION)
    for first in range(0, len(records), RECORDS_PER_BATCH):
        writer, offset = MetadataBatchWriter(now_ms), store.log.log_end_offset
        for number, record in enumerate(records[first : first + RECORDS_PER_BATCH]):
            writer.add_message(record, level)
            machine.replay(offset + number, record)
        store.append(LogAppend(offset, writer.count, epoch, batch=writer.build()), now_ms)
    run_to_end(machine.complete_append(store.log.log_end_offset - 1, epoch))
