"""What goes into the raft machine and what it asks for: plain values, no wire format and no file in sight.

The rule numbers (R-201 on) in this folder are those of the project's list of Kafka's replication rules; each stands
beside what it demands. Source: ``KafkaRaftClient.java`` and its schemas (apache/kafka 4.3.1; KIP-595, 853, 996, 1166).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import Endpoint, VotersRecord

NO_NODE_ID = -1


class ReplicaKey(NamedTuple):
    """A replica of the metadata log; without a directory where that is not known (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID

    def may_be_same(self, other: ReplicaKey) -> bool:
        """Return whether both may be one replica: a directory that is not known matches any."""
        known = ZERO_UUID not in (self.directory_id, other.directory_id)
        return self.id == other.id and (not known or self.directory_id == other.directory_id)

    def identifies(self, replica: ReplicaKey) -> bool:
        """Whether this key, of a voter set, a vote or a request, means ``replica``: without a directory any (R-201).

        It is not symmetrical: an entry with a directory does not mean a replica that names none (R-245).
        """
        return self.id == replica.id and self.directory_id in (ZERO_UUID, replica.directory_id)


class VoterState(IntEnum):
    """Whether a voter of a fixed set remembers all it ever said (see `lost_disk`)."""

    GROWN = 0
    NEWBORN = 1
    """Nothing was here, and nothing was heard of a quorum."""
    LEARNING = 2
    """Nothing was here, and there is a quorum."""


class HardState(NamedTuple):
    """What must be on disk before anything that follows from it is said (R-202)."""

    epoch: int
    leader_id: int = NO_NODE_ID
    voted_key: ReplicaKey | None = None
    voter_state: VoterState = VoterState.GROWN
    """Whoever gives another one its vote is grown with it: nothing says so any more."""


# ------------------------------------------------------------------ what comes in


class RaftStarted(NamedTuple):
    """The log was opened: begin (R-204, R-205)."""


class Tick(NamedTuple):
    """Time has passed."""


class Propose(NamedTuple):
    """As leader: append records that were made a batch of already."""

    batch: Any
    records_count: int


class LogFlushed(NamedTuple):
    """Everything below ``end_offset`` is on disk here."""

    end_offset: int


class Vote(NamedTuple):
    """Will you have me? ``pre_vote``: would you? (KIP-996)."""

    candidate: ReplicaKey
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool = False
    voter: ReplicaKey | None = None
    """Whom it is meant for."""


class BeginEpoch(NamedTuple):
    """A leader makes itself known."""

    leader_id: int
    epoch: int
    voter: ReplicaKey | None = None


class EndEpoch(NamedTuple):
    """A leader goes; who is best to follow it comes first in ``preferred_successors``."""

    leader_id: int
    epoch: int
    preferred_successors: tuple[ReplicaKey, ...] = ()


class Fetch(NamedTuple):
    """Another replica asks for what follows its log."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int = -1
    max_wait_ms: int = 0
    max_bytes: int = 1024 * 1024
    """A batch at least."""


class FetchSnapshot(NamedTuple):
    """Another replica asks for a part of a snapshot."""

    replica: ReplicaKey
    epoch: int
    snapshot: tuple[int, int]
    """(end offset, epoch)."""
    position: int
    max_bytes: int = 1024 * 1024
    size_bytes: int = -1
    """How large the snapshot is here, as the shell found before it handed the request in; -1: there is none."""


class AddVoter(NamedTuple):
    """Make a replica a voter (R-246 to R-248)."""

    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    """Let a replica vote no more (R-246)."""

    voter: ReplicaKey


class UpdateVoter(NamedTuple):
    """A voter says where it listens and which kraft.versions it speaks (R-249)."""

    voter: ReplicaKey
    epoch: int
    endpoints: tuple[Endpoint, ...]
    min_version: int
    max_version: int


class UpgradeKRaftVersion(NamedTuple):
    """Raise kraft.version (R-244); asked by this node's own controller only."""

    level: int
    validate_only: bool = False


class QueryKRaftVersions(NamedTuple):
    """Which kraft.versions does the replica speak that shall become a voter? It is asked at these endpoints (R-248)."""

    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]


RaftRequest = (
    Vote
    | BeginEpoch
    | EndEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | UpgradeKRaftVersion
    | QueryKRaftVersions
)


class RequestReceived(NamedTuple):
    """A request came in; its answer goes to ``pending_request``."""

    pending_request: Any
    request: RaftRequest


class RaftResponse(NamedTuple):
    """Every answer says who leads, as far as is known."""

    error: ErrorCode
    epoch: int
    leader_id: int
    vote_granted: bool = False
    """Of a Vote."""


class RaftFetchResponse(NamedTuple):
    """Records from ``offset`` on, or why not."""

    error: ErrorCode
    epoch: int
    leader_id: int
    offset: int = -1
    """The shell reads from here; -1 where there is nothing to read, and where nothing came."""
    high_watermark: int = -1
    diverging: tuple[int, int] | None = None
    """(epoch, end offset): the asker's log must be cut to there."""
    snapshot: tuple[int, int] | None = None
    """(end offset, epoch) of the snapshot to load first."""


class RaftFetchSnapshotResponse(NamedTuple):
    """Bytes of a snapshot from ``position`` on, or why not."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: tuple[int, int] = (-1, -1)
    """(end offset, epoch)."""
    size_bytes: int = 0
    """Of the whole snapshot."""
    position: int = 0


class VoterChangeResponse(NamedTuple):
    """What became of a change of the voters."""

    error: ErrorCode
    epoch: int = -1
    leader_id: int = NO_NODE_ID
    message: str | None = None


class KRaftVersionsResponse(NamedTuple):
    """The kraft.versions another node speaks; -1 where it does not say."""

    error: ErrorCode
    min_version: int = -1
    max_version: int = -1
    epoch: int = -1
    leader_id: int = NO_NODE_ID


AnyRaftResponse = (
    RaftResponse | RaftFetchResponse | RaftFetchSnapshotResponse | VoterChangeResponse | KRaftVersionsResponse
)


class FetchedRaftBatch(NamedTuple):
    """A batch of the leader's log, as a follower received it."""

    first_offset: int
    last_offset: int
    epoch: int
    raw: Any
    voters: VotersRecord | None = None
    """Where it is a control batch that changes them."""


class ResponseReceived(NamedTuple):
    """What came back for a request of ours."""

    peer: int
    request: RaftRequest
    response: AnyRaftResponse
    batches: tuple[FetchedRaftBatch, ...] = ()


class RequestRejected(NamedTuple):
    """A request of ours was refused as a whole, or the peer speaks no version that can say it (UNSUPPORTED_VERSION)."""

    peer: int
    request: RaftRequest
    error: ErrorCode


class RequestFailed(NamedTuple):
    """A request of ours got no answer."""

    peer: int
    request: RaftRequest


class PeerConnectionRefused(NamedTuple):
    """A peer's port refuses: its process is gone, or not there yet."""

    peer: int


class SnapshotChunkReceived(NamedTuple):
    """A part of the leader's snapshot came, as it was asked for: the leader lives."""


class SnapshotLoaded(NamedTuple):
    """The leader's snapshot lies here whole; `Ready.truncate_to_snapshot` says whether it replaces the log (R-235)."""

    end_offset: int
    epoch: int
    voters: VotersRecord | None = None


class SnapshotCreated(NamedTuple):
    """A snapshot was written here, or old ones went: those there are, and where the log begins now."""

    log_start_offset: int
    snapshots: tuple[tuple[int, int], ...]


class Resign(NamedTuple):
    """The node stops: let go of leadership (R-210)."""


RaftEvent = (
    RaftStarted
    | Tick
    | Propose
    | LogFlushed
    | RequestReceived
    | ResponseReceived
    | RequestRejected
    | RequestFailed
    | PeerConnectionRefused
    | SnapshotChunkReceived
    | SnapshotLoaded
    | SnapshotCreated
    | Resign
)


# ------------------------------------------------------------------ what goes out


class LogAppend(NamedTuple):
    """A batch for the log: ours (raw bytes or control records, stamped with ``epoch``), or the leader's as it is."""

    first_offset: int
    records_count: int
    epoch: int
    batch: Any = None
    controls: tuple[Message, ...] = ()
    verbatim: bool = False


class OutboundRequest(NamedTuple):
    """A request for another voter, or, where ``peer`` is below 0, for a bootstrap server (-2, -3, ...)."""

    peer: int
    request: RaftRequest


class OutboundResponse(NamedTuple):
    """An answer for whoever asked."""

    pending_request: Any
    response: AnyRaftResponse


@dataclass(slots=True)
class Ready:
    """What one step wants done, in this order: state on disk, cut or start over, append; then it may be told."""

    hard_state: HardState | None = None
    truncate: int | None = None
    appends: list[LogAppend] = field(default_factory=list)
    sends: list[OutboundRequest] = field(default_factory=list)
    replies: list[OutboundResponse] = field(default_factory=list)
    committed: int | None = None
    """The new high watermark, where it moved."""
    load_snapshot: tuple[int, int] | None = None
    """(end offset, epoch): fetch this snapshot from the leader, by `FetchSnapshot` after `FetchSnapshot`.

    Each answer is handed in as it comes (`ResponseReceived`), and `SnapshotLoaded` at last. Once the machine's
    ``loading_snapshot`` is not this snapshot any more (no follower of that leader now, or the leader has it no more) it
    will not be taken.
    """
    protocol_violation: str | None = None
    """What another node said that cannot be, and was not believed: worth a line in the log."""
    log_message: tuple[int, str] | None = None
    """(level, text): what is worth a line in the log besides."""
    truncate_to_snapshot: tuple[int, int] | None = None
    """(end offset, epoch) of the snapshot that was loaded: the log is emptied, and begins and ends there."""

    def report(self, level: int, text: str) -> None:
        """Have a line logged."""
        self.log_message = (level, text)

    def report_violation(self, text: str) -> None:
        """Have it logged that another node broke the protocol."""
        self.protocol_violation = text
