"""Storage of the metadata log, its snapshots and ``quorum-state`` of one node.

The constructor loads the newest readable snapshot. All records below its end offset were committed and flushed before
it was written: that is the log's recovery point; only the log from there on is read. ``now_ms``: wall clock.

Source: ``KafkaRaftLog.java``, ``MetadataLogConfig.java``, ``Snapshots.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from ottla.controller.metadata.record_serde import control_batch
from ottla.controller.metadata.snapshot_files import (
    SnapshotContents,
    SnapshotId,
    last_contained_log_timestamp,
    list_snapshots,
    read_snapshot,
    write_snapshot,
)
from ottla.controller.raft.quorum_config import QuorumConfig
from ottla.controller.raft.state_machine.events import HardState, LogAppend, ReplicaKey, SnapshotCreated, VoterState
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.store.metadata_log_config import MetadataLogConfig
from ottla.controller.raft.store.quorum_records import QuorumRecords
from ottla.controller.raft.store.quorum_state_file import QUORUM_STATE, QuorumStateFile
from ottla.env.disk import Disk
from ottla.jobs.job import run_to_end
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.log.directory.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.log.directory.meta_properties import MetaProperties
from ottla.log.file_names import base_offsets_of, is_unfinished_snapshot
from ottla.log.log_config import FOREVER_MS, LogConfig
from ottla.log.log_flush import LogFlush
from ottla.log.log_validator import AppendOrigin
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.log_loader import create_log, open_log
from ottla.log.segment.log_segments import remove_files
from ottla.wire.codec.primitives import Buffer
from ottla.wire.codec.schema import Message
from ottla.wire.record_batch.batch_header import BatchHeader, iterate_batches, parse_header
from ottla.wire.record_batch.control_record import decode_control_record
from ottla.wire.record_batch.records import iterate_records

MAX_READ_BYTES = 1024 * 1024
"""Maximum bytes of the log read for another replica at once: the read blocks the event loop."""


class IncompatibleQuorum(Exception):
    """Quorum that this node cannot join: voters without an address, or an unsupported metadata.version."""


DEFAULT_METADATA_LOG_CONFIG = MetadataLogConfig()


class MetadataStore:
    """Metadata log, snapshots, quorum-state of a node; only flush, state write and `write_snapshot` run in threads."""

    def __init__(
        self,
        disk: Disk,
        data_dir: str,
        identity: MetaProperties,
        now_ms: int,
        settings: MetadataLogConfig = DEFAULT_METADATA_LOG_CONFIG,
    ) -> None:
        self.disk = disk.private()
        self.settings = settings
        self.local_replica = ReplicaKey(identity.node_id, identity.directory_id)
        self.directory = f"{data_dir}/{METADATA_TOPIC}-0"
        self._log_settings = LogConfig(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            max_message_bytes=2**31 - 1,
            timestamp_after_max_ms=FOREVER_MS,
        )
        self._state = QuorumStateFile.read(self.disk, f"{self.directory}/{QUORUM_STATE}")
        self.snapshot_id = SnapshotId(0, 0)
        self.snapshot = SnapshotContents()
        self.snapshots: list[SnapshotId] = []
        self._choose_snapshot()
        self.log = self._open(now_ms)
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = self.snapshot.timestamp_ms
        self.quorum_records = self._read_quorum()
        self.snapshot_generation = 0
        """Number of times that a downloaded snapshot has replaced the log."""
        self.last_snapshot_ms = now_ms
        """Wall clock in ms when this process wrote the last snapshot, or started."""

    # ------------------------------------------------------------------ loading

    def _choose_snapshot(self) -> None:
        """Load the newest readable snapshot at or after the log start offset (R-233); delete unfinished and older ones.

        Raises CorruptFile if none is readable and the log starts above 0, or if the bootstrap snapshot is corrupt.
        """
        if not self.disk.exists(self.directory):
            return
        names = self.disk.list_files(self.directory)
        for name in names:
            if is_unfinished_snapshot(name):
                self.disk.unlink(f"{self.directory}/{name}")
        start = min(base_offsets_of(names, ".log"), default=0)
        found = list_snapshots(self.disk, self.directory)
        self.snapshots = [s for s in found if s.end_offset >= start]
        for old in found[: len(found) - len(self.snapshots)]:
            self.disk.unlink(f"{self.directory}/{old.file_name}")
        for snapshot in reversed(self.snapshots):
            try:
                self.snapshot = run_to_end(read_snapshot(self.disk, f"{self.directory}/{snapshot.file_name}"))
                self.snapshot_id = snapshot
                return
            except CorruptFile:
                if snapshot.end_offset == 0:
                    raise
        if start > 0:
            raise CorruptFile(f"{self.directory}: log start offset {start} without a snapshot at or after it")

    def _open(self, now_ms: int) -> PartitionLog:
        disk, end = self.disk, self.snapshot_id.end_offset
        if not disk.exists(self.directory) or not base_offsets_of(disk.list_files(self.directory), ".log"):
            log = create_log(disk, self.directory, METADATA_TOPIC, 0, METADATA_TOPIC_ID, self._log_settings, now_ms)
        else:
            log = open_log(
                disk,
                self.directory,
                METADATA_TOPIC,
                0,
                self._log_settings,
                now_ms,
                clean=False,
                recovery_point=end,
            )
        if log.log_end_offset < end or -1 < log.epochs.epoch_for_offset(end - 1) < self.snapshot_id.epoch:
            # A power failure lost the unflushed end of the log; the snapshot covers it: the log starts at its end
            #
            log.truncate_fully_and_start_at(end, now_ms)
        return log

    def _read_quorum(self) -> QuorumRecords:
        """Return kraft.version and voters from snapshot and log; set `bytes_since_snapshot`, `last_timestamp_ms`."""
        seed = self.snapshot_id.end_offset - 1
        out = QuorumRecords(self.snapshot.kraft_version, self.snapshot.voters, seed)
        for header, raw in self.log.segments.batches(seed + 1):
            if header.base_offset > seed:
                self.bytes_since_snapshot += header.size_bytes
                self.last_timestamp_ms = header.max_timestamp
            if header.is_control and header.base_offset > seed:
                for record in iterate_records(raw, header):
                    out.replay(record.offset, decode_control_record(record))
        return out

    @property
    def persisted_hard_state(self) -> HardState:
        """Epoch, leader, vote and voter state as read from quorum-state or last passed to `prepare_state_write`."""
        return self._state.hard_state

    def initial_hard_state(self, quorum: QuorumConfig) -> HardState:
        """Return the persisted hard state; voter state NORMAL below two static voters, EMPTY_LOG without files."""
        if len(quorum.static_voters) < 2:
            # no other voter has a state to lose
            return self.persisted_hard_state._replace(voter_state=VoterState.NORMAL)
        is_new = not self._state.existed and self.log.log_end_offset == 0 and not self.snapshots
        votes = self.local_replica.id in [i for i, _ in quorum.static_voters]
        return (
            self.persisted_hard_state._replace(voter_state=VoterState.EMPTY_LOG)
            if is_new and votes
            else self.persisted_hard_state
        )

    @property
    def kraft_version(self) -> int:
        """kraft.version: 0 if the voters are fixed by configuration, 1 if they are in a VotersRecord."""
        return self.quorum_records.kraft_version

    def log_summary(self) -> LogSummary:
        """Return a copy of the log's offsets, epochs and snapshot ids, for the Raft state machine."""
        log = self.log
        snapshots = [(s.end_offset, s.epoch) for s in self.snapshots]
        return LogSummary(log.log_end_offset, log.epochs.entries, log.log_start_offset, snapshots)

    def voter_history(self, quorum: QuorumConfig) -> VoterSetHistory:
        """Return the voter sets in the log; without any, static voters, those in quorum-state, or this node (R-237).

        This node only without bootstrap servers; with them the set is empty.

        Raises:
            IncompatibleQuorum: there are no bootstrap servers, and another voter has no address, or this node is no
                voter and there are no static voters.
        """
        me = self.local_replica
        last_known = self._state.preserved_fields.get("currentVoters") if self._state.data_version == 0 else None
        if quorum.static_voters:
            fixed = [ReplicaKey(i) for i, _ in quorum.static_voters]
        elif last_known:
            fixed = [ReplicaKey(v["voterId"]) for v in last_known]
        else:
            fixed = [] if quorum.bootstrap_servers else [me]
        out = self.quorum_records.voter_history(fixed)
        others = [v.id for v in out.current if not v.may_be_same(me)]
        addressed = (
            {v.voter_id for v in self.quorum_records.voters.voters if v.endpoints}
            if self.quorum_records.voters
            else set()
        )
        addressed |= {i for i, _ in quorum.static_voters}
        lost = not out.is_voter(me) and not quorum.static_voters
        if not quorum.bootstrap_servers and (lost or not addressed.issuperset(others)):
            ids = [v.id for v in out.current]
            raise IncompatibleQuorum(
                f"the metadata quorum has the voters {ids}; node {me.id} has no address of them: set "
                "controller.quorum.bootstrap.servers"
            )
        return out

    def first_records(self, quorum: QuorumConfig) -> tuple[Message, ...]:
        """Return the control records that this node appends after LeaderChangeMessage if it becomes leader (R-243)."""
        return self.quorum_records.records_for_new_leader(self.local_replica, quorum.endpoints)

    def committed_batches(self, offset: int, upper_offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Yield the batches from the batch with ``offset`` to the batch before ``upper_offset``, committed or not.

        Raises WireError if a batch is damaged.
        """
        if offset < upper_offset:
            for header, raw in self.log.segments.batches(offset):
                if header.base_offset >= upper_offset:
                    return
                yield header, raw

    def snapshot_size_bytes(self, name: SnapshotId) -> int:
        """Return the size of a snapshot file in bytes; -1 if it does not exist."""
        return self.disk.stat(f"{self.directory}/{name.file_name}").size_bytes if name in self.snapshots else -1

    def read_snapshot_chunk(self, name: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Return bytes of a snapshot from ``position`` on, for another replica (R-234). An OSError is a disk failure.

        ``max_bytes``: limit of the request; no bytes if negative, at most `MAX_READ_BYTES`.
        """
        with closing(self.disk.open(f"{self.directory}/{name.file_name}", readonly=True)) as file:
            return file.pread(min(max(0, max_bytes), MAX_READ_BYTES), position)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from ``offset`` on for another replica, committed or not; empty only at the end (R-219).

        At most ``max_bytes`` and `MAX_READ_BYTES`, or one batch. Raises ProtocolError (damaged batch), OSError (disk).
        """
        most = min(max(0, max_bytes), MAX_READ_BYTES)
        found = self.log.read(offset, most, self.log.log_end_offset, at_least_one=True)
        if found is None:
            return b""
        raw = found.read()
        end = 0
        for at, header in iterate_batches(raw):
            end = at + header.size_bytes
        return raw[:end]

    # ------------------------------------------------------------------ actions of the Raft state machine

    def prepare_state_write(self, hard: HardState, voters: VoterSetHistory) -> Callable[[], None]:
        """Return a callable for a thread that writes and syncs quorum-state, before all other actions (R-202).

        Its OSError is a disk failure.
        """
        self._state.update(hard, self.kraft_version, [v.id for v in voters.current])
        return partial(self._state.write, self.disk, f"{self.directory}/{QUORUM_STATE}")

    def append(self, append: LogAppend, now_ms: int) -> None:
        """Append a batch of this node as leader, or of another leader verbatim, unsynced; replay its control records.

        An OSError is a disk failure.
        """
        if append.verbatim:
            header = self._append_as_follower(append.batch, now_ms)
        else:
            raw = control_batch(append.controls, now_ms) if append.controls else append.batch
            self.log.append_as_leader(raw, append.epoch, now_ms, AppendOrigin.RAFT_LEADER)
            header = parse_header(raw)
            for number, record in enumerate(append.controls):
                self.quorum_records.replay(header.base_offset + number, record)
        self.bytes_since_snapshot += header.size_bytes
        self.last_timestamp_ms = header.max_timestamp
        assert (header.base_offset, header.last_offset_delta + 1) == append[:2], f"{header} is not {append}"

    def _append_as_follower(self, raw: Buffer, now_ms: int) -> BatchHeader:
        self.log.append_as_follower(raw, now_ms)
        header = parse_header(raw)
        if header.is_control:
            for record in iterate_records(raw, header):
                self.quorum_records.replay(record.offset, decode_control_record(record))
        return header

    def truncate(self, offset: int, now_ms: int) -> None:
        """Truncate the log to end at ``offset``, where it diverges from the leader's; an OSError is a disk failure."""
        end = self.log.truncate_to(offset, now_ms)
        assert end == offset, f"the log was cut at {end}, not at {offset}: inside a batch"
        self.quorum_records.truncate(offset)

    def truncate_to_snapshot(self, name: SnapshotId, snapshot: SnapshotContents, now_ms: int) -> None:
        """Replace log and snapshots by a downloaded snapshot of the leader (R-235); an OSError is a disk failure."""
        self.log.truncate_fully_and_start_at(name.end_offset, now_ms)
        for old in self.snapshots:
            if old != name:
                self.disk.unlink(f"{self.directory}/{old.file_name}")
        self.snapshot_id, self.snapshots, self.snapshot = name, [name], snapshot
        self.quorum_records = QuorumRecords(snapshot.kraft_version, snapshot.voters, name.end_offset - 1)
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = snapshot.timestamp_ms
        self.snapshot_generation += 1

    def prepare_flush(self) -> LogFlush:
        """Return a flush of all records appended so far: call it in a thread, then pass it to `complete_flush`."""
        return self.log.start_flush(self.log.log_end_offset)

    def complete_flush(self, job: LogFlush) -> int:
        """Record that a flush, which was called, is complete; return the offset below which the log is flushed."""
        return self.log.complete_flush(job)

    def on_high_watermark(self, end: int) -> None:
        """Advance the high watermark of the log to ``end``, for retention."""
        self.log.set_high_watermark(end)

    # ------------------------------------------------------------------ snapshots

    def is_snapshot_due(self, now_ms: int) -> bool:
        """Return True if enough bytes were appended since the last snapshot, or any and it is old enough (R-230)."""
        if self.bytes_since_snapshot == 0:
            return False
        by_time = 0 < self.settings.snapshot_ms <= now_ms - self.last_snapshot_ms
        return by_time or self.bytes_since_snapshot >= self.settings.snapshot_bytes

    def prepare_snapshot(self, end_offset: int, now_ms: int) -> tuple[SnapshotId, SnapshotContents]:
        """Prepare a snapshot of the records below ``end_offset``: return its id and its contents without records.

        The period until the next one starts now. The log rolls a segment, so that segments that the snapshot covers are
        not read at a start and can be deleted.
        """
        self.bytes_since_snapshot = 0
        self.last_snapshot_ms = now_ms
        if self.log.segments.active.base_offset < self.log.log_end_offset:
            self.log.roll(now_ms)
        name = SnapshotId(end_offset, self.log.epochs.epoch_for_offset(end_offset - 1))
        return name, SnapshotContents([], *self.quorum_records.as_of(end_offset), self.last_timestamp_ms)

    def write_snapshot(self, name: SnapshotId, raw: bytes) -> None:
        """Write and sync the snapshot file with the encoded contents ``raw``; called in a thread, as it blocks."""
        write_snapshot(self.disk, f"{self.directory}/{name.file_name}", raw)

    def complete_snapshot(self, name: SnapshotId, now_ms: int) -> None:
        """Record a written snapshot, and delete old snapshots and segments by retention.

        If a newer snapshot of the leader has replaced the log meanwhile, the written one is deleted.
        """
        if name.end_offset < self.snapshot_id.end_offset:
            self.disk.unlink(f"{self.directory}/{name.file_name}")
            return
        self.snapshot_id = name
        if name not in self.snapshots:
            self.snapshots.append(name)
        self.clean_old_snapshots(now_ms)

    def clean_old_snapshots(self, now_ms: int) -> None:
        """Delete the oldest snapshots while log and snapshots are too large or the oldest is too old (R-232).

        The newest one is never deleted. The log start offset becomes the end offset of the oldest remaining snapshot;
        segments below it are deleted.
        """
        while len(self.snapshots) >= 2 and self._is_oldest_deletable(now_ms):
            old = self.snapshots.pop(0)
            path = f"{self.directory}/{old.file_name}"
            if self.disk.exists(path):
                self.disk.unlink(path)
            if self.log.maybe_increment_log_start_offset(min(self.snapshots[0].end_offset, self.log.high_watermark)):
                self.log.delete_segments_below_start(now_ms)
        remove_files(self.log.disk, self.log.segments.pop_deletable_files(now_ms))

    def _is_oldest_deletable(self, now_ms: int) -> bool:
        sizes = (self.disk.stat(f"{self.directory}/{s.file_name}").size_bytes for s in self.snapshots)
        if self.settings.retention_bytes >= 0 and self.log.size_bytes + sum(sizes) > self.settings.retention_bytes:
            return True
        if self.settings.retention_ms < 0:
            return False
        try:
            oldest_ms = last_contained_log_timestamp(self.disk, f"{self.directory}/{self.snapshots[0].file_name}")
        except CorruptFile:
            return True  # it cannot be loaded at a start
        return now_ms - oldest_ms > self.settings.retention_ms

    def snapshot_created_event(self) -> SnapshotCreated:
        """Return the event for the Raft state machine with the ids of all snapshots and the log start offset."""
        return SnapshotCreated(self.log.log_start_offset, tuple((s.end_offset, s.epoch) for s in self.snapshots))

    def close(self) -> None:
        """Flush and close the log in a clean shutdown, waiting for the disk, and release the reserved descriptors."""
        self.log.close()
        self.disk.close()
