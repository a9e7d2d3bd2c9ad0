"""The metadata log and its ``quorum-state`` file, for a quorum whose only voter is this node.

A single voter elects itself: it raises the epoch, writes that down before anything else, and opens the epoch with a
LeaderChange record. What it has synced is committed. Everything else (rules, image, records) does not know how many
voters there are.

Sources: ``KafkaRaftClient.java``, ``LeaderState.java``, ``FileQuorumStateStore.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.controller.records import control_record, decode_control, encode_record, messages
from ottla.controller.snapshots import (
    Snapshot,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    snapshot_bytes,
    write_snapshot,
)
from ottla.log.checkpoints import CorruptFile
from ottla.log.directory import METADATA_TOPIC, METADATA_TOPIC_ID, Identity
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery import create_log, open_log
from ottla.log.settings import FOREVER_MS, LogSettings
from ottla.log.validate import Origin
from ottla.wire import batch as b
from ottla.wire import records as r
from ottla.wire.messages import control_records as ctl
from ottla.wire.primitives import uuid_text
from ottla.wire.schema import ZERO_UUID, Message
from ottla.world.disk import Disk, read_file, write_file

QUORUM_STATE = "quorum-state"
_SETTINGS = LogSettings(segment_ms=604_800_000, max_message_bytes=2**31 - 1, timestamp_after_max_ms=FOREVER_MS)


class NotOurQuorum(Exception):
    """The directory belongs to a quorum this node cannot lead alone."""


@dataclass(slots=True)
class QuorumState:
    """What must survive so that no epoch ever gets two leaders."""

    leader_id: int = -1
    leader_epoch: int = 0
    voted_id: int = -1
    data_version: int = 1
    rest: dict[str, Any] | None = None
    """Fields of data version 0 (static quorums), written back as they were."""

    @classmethod
    def read(cls, disk: Disk, path: str) -> QuorumState:
        """Read the file; the initial state where there is none.

        Raises:
            CorruptFile: not such a file.
        """
        if not disk.exists(path):
            return cls()
        try:
            values = json.loads(read_file(disk, path))
            rest = {k: values[k] for k in ("clusterId", "appliedOffset", "currentVoters") if k in values}
            return cls(
                int(values["leaderId"]),
                int(values["leaderEpoch"]),
                int(values["votedId"]),
                values["data_version"],
                rest,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptFile(f"{path}: {error!r}") from None

    def write(self, disk: Disk, path: str) -> None:
        """Write and sync the file."""
        rest = dict(self.rest or {})
        values: dict[str, Any] = {}
        if self.data_version == 0:
            values["clusterId"] = rest.get("clusterId", "")
        values |= {"leaderId": self.leader_id, "leaderEpoch": self.leader_epoch, "votedId": self.voted_id}
        if self.data_version == 0:
            values["appliedOffset"] = rest.get("appliedOffset", 0)
            values["currentVoters"] = rest.get("currentVoters", [])
        else:
            values["votedDirectoryId"] = uuid_text(ZERO_UUID)
        values["data_version"] = self.data_version
        write_file(disk, path, json.dumps(values, separators=(",", ":")).encode())


class SoleVoter:
    """The metadata log of a quorum of one."""

    def __init__(self, disk: Disk, data_dir: str, identity: Identity, now_ms: int) -> None:
        self.disk = disk
        self.identity = identity
        self.directory = f"{data_dir}/{METADATA_TOPIC}-0"
        self.log = self._open(now_ms)
        self.state = QuorumState.read(disk, f"{self.directory}/{QUORUM_STATE}")
        self.snapshot_id = SnapshotId(0, 0)
        self.snapshot = Snapshot()
        self._load_snapshot(now_ms)
        self.kraft_version = self.snapshot.kraft_version
        self.voters = self.snapshot.voters
        self.bytes_since_snapshot = 0
        self.last_timestamp_ms = self.snapshot.timestamp_ms

    @property
    def epoch(self) -> int:
        """The current leader epoch."""
        return self.state.leader_epoch

    def _open(self, now_ms: int) -> PartitionLog:
        if self.disk.exists(self.directory) and any(n.endswith(".log") for n in self.disk.listdir(self.directory)):
            return open_log(self.disk, self.directory, METADATA_TOPIC, 0, _SETTINGS, now_ms, clean=False)
        return create_log(self.disk, self.directory, METADATA_TOPIC, 0, METADATA_TOPIC_ID, _SETTINGS, now_ms)

    def _load_snapshot(self, now_ms: int) -> None:
        """The newest snapshot that can be read; an older one serves while the log still reaches back to it."""
        for found in reversed(list_snapshots(self.disk, self.directory)):
            try:
                self.snapshot = read_snapshot(self.disk, f"{self.directory}/{found.file_name}")
                self.snapshot_id = found
                break
            except CorruptFile:
                if found.end_offset <= self.log.log_start_offset:
                    raise
        if self.snapshot_id.end_offset > self.log.log_end_offset:
            # The log lost its end (unsynced, power cut) but the synced snapshot covers it: go on from there.
            self.log.start_over_at(self.snapshot_id.end_offset, now_ms)

    def replay(self) -> Iterator[tuple[int, Message]]:
        """(offset, record) of every metadata record behind the snapshot; quorum records are taken in on the way.

        Raises:
            WireError: a record cannot be read.
        """
        for header, raw in self.log.batches(self.snapshot_id.end_offset):
            self.bytes_since_snapshot += header.size_bytes
            self.last_timestamp_ms = header.max_timestamp
            if header.is_control:
                for record in r.iterate(raw, header):
                    self._take_control(decode_control(record))
            else:
                for offset, message in messages(header, raw):
                    if offset >= self.snapshot_id.end_offset:
                        yield offset, message

    def _take_control(self, message: Message | None) -> None:
        match message:
            case ctl.KRaftVersionRecord():
                self.kraft_version = message.k_raft_version
            case ctl.VotersRecord():
                self.voters = message

    def check_alone(self) -> None:
        """Raise NotOurQuorum unless this node is the only voter."""
        ids = [self.identity.node_id]
        ours = True
        if self.voters is not None:
            ids = [v.voter_id for v in self.voters.voters]
            own = [v.voter_directory_id for v in self.voters.voters if v.voter_id == self.identity.node_id]
            ours = bool(own) and own[0] in (self.identity.directory_id, ZERO_UUID)
        elif self.state.data_version == 0 and self.state.rest and self.state.rest.get("currentVoters"):
            ids = [v["voterId"] for v in self.state.rest["currentVoters"]]
        if ids != [self.identity.node_id] or not ours:
            raise NotOurQuorum(f"the metadata quorum has the voters {ids}; this node is {self.identity.node_id} alone")

    def lead(self, now_ms: int) -> None:
        """Become leader of a new epoch: the epoch is on disk before its first record is."""
        epoch = max(self.state.leader_epoch, self.log.epochs.latest(), self.snapshot_id.epoch, 0) + 1
        self.state = QuorumState(self.identity.node_id, epoch, -1, self.state.data_version, self.state.rest)
        self.state.write(self.disk, f"{self.directory}/{QUORUM_STATE}")
        voters = [ctl.LeaderChangeMessageVoter(self.identity.node_id)]
        controls: list[Message] = [ctl.LeaderChangeMessage(0, self.identity.node_id, voters, voters)]
        if self.log.log_end_offset == 0 and self.voters is not None:
            controls += [ctl.KRaftVersionRecord(0, self.kraft_version), self.voters]
        self._append([control_record(x, now_ms) for x in controls], now_ms, attributes=b.CONTROL_BIT)

    def append(self, records: Sequence[Message], now_ms: int, metadata_version: int) -> int:
        """Append records as one batch, so that all of them count or none; gives the first offset. Not yet synced."""
        return self._append([r.NewRecord(None, encode_record(x, metadata_version), now_ms) for x in records], now_ms)

    def _append(self, records: list[r.NewRecord], now_ms: int, attributes: int = 0) -> int:
        raw = bytearray(r.build(records, attributes=attributes))
        self.bytes_since_snapshot += len(raw)
        self.last_timestamp_ms = now_ms
        return self.log.append_as_leader(raw, self.epoch, now_ms, Origin.RAFT).first_offset

    def sync(self) -> int:
        """Sync the log: everything below the offset returned is committed.

        Raises:
            OSError: final for this directory.
        """
        end = self.log.log_end_offset
        self.log.flush()
        return end

    def committed(self, end: int) -> None:
        """Everything below ``end`` is on disk at a majority: here, at this node."""
        self.log.set_high_watermark(end)

    def write_snapshot(self, records: list[Message], end_offset: int, now_ms: int, metadata_version: int) -> None:
        """Write the state as of ``end_offset`` to a snapshot file."""
        snapshot = Snapshot(records, self.kraft_version, self.voters, self.last_timestamp_ms)
        self.snapshot_id = SnapshotId(end_offset, self.log.epochs.epoch_at(end_offset - 1))
        raw = snapshot_bytes(snapshot, self.snapshot_id.epoch, now_ms, metadata_version)
        write_snapshot(self.disk, f"{self.directory}/{self.snapshot_id.file_name}", raw)
        self.bytes_since_snapshot = 0
