"""Inputs and outputs of the raft state machine: plain values without wire format or files.

The rule numbers (R-201 on) in this folder are those of the project's list of Kafka's replication rules; each is next to
its implementation. Source: ``KafkaRaftClient.java`` and its schemas (apache/kafka 4.3.1; KIP-595, 853, 996, 1166).
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
        """Return True if this key matches ``replica``: any directory if the key has none (R-201).

        It is not symmetrical: an entry with a directory does not match a replica without one (R-245).
        """
        return self.id == replica.id and self.directory_id in (ZERO_UUID, replica.directory_id)


class VoterState(IntEnum):
    """State of a voter of a static set regarding its earlier votes (see `lost_disk`)."""

    GROWN = 0
    NEWBORN = 1
    """Empty disk, and no known quorum."""
    LEARNING = 2
    """Empty disk, and an existing quorum."""


class HardState(NamedTuple):
    """State that must be durable before any message that depends on it (R-202)."""

    epoch: int
    leader_id: int = NO_NODE_ID
    voted_key: ReplicaKey | None = None
    voter_state: VoterState = VoterState.GROWN
    """GROWN after the voter's first vote; later states do not change it."""


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
    """Event that the log below ``end_offset`` is on disk."""

    end_offset: int


class Vote(NamedTuple):
    """Will you have me? ``pre_vote``: would you? (KIP-996)."""

    candidate: ReplicaKey
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool = False
    voter: ReplicaKey | None = None
    """Voter the request is meant for."""


class BeginEpoch(NamedTuple):
    """A leader makes itself known."""

    leader_id: int
    epoch: int
    voter: ReplicaKey | None = None


class EndEpoch(NamedTuple):
    """Resignation of a leader, with ``preferred_successors`` in order."""

    leader_id: int
    epoch: int
    preferred_successors: tuple[ReplicaKey, ...] = ()


class Fetch(NamedTuple):
    """Fetch of another replica."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int = -1
    max_wait_ms: int = 0
    max_bytes: int = 1024 * 1024
    """A batch at least."""


class FetchSnapshot(NamedTuple):
    """FetchSnapshot of another replica."""

    replica: ReplicaKey
    epoch: int
    snapshot: tuple[int, int]
    """(end offset, epoch)."""
    position: int
    max_bytes: int = 1024 * 1024
    size_bytes: int = -1
    """Size of the snapshot on this node, which the driver sets; -1: there is none."""


class AddVoter(NamedTuple):
    """Make a replica a voter (R-246 to R-248)."""

    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    """Let a replica vote no more (R-246)."""

    voter: ReplicaKey


class UpdateVoter(NamedTuple):
    """Update of a voter's endpoints and supported kraft.versions (R-249)."""

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
    """Query of the kraft.versions of a replica that becomes a voter, at these endpoints (R-248)."""

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
    """Response with the leader, as far as known."""

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
    """Offset from which the driver reads; -1 if there is no record."""
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
    """Result of a voter change."""

    error: ErrorCode
    epoch: int = -1
    leader_id: int = NO_NODE_ID
    message: str | None = None


class KRaftVersionsResponse(NamedTuple):
    """Supported kraft.versions of another node; -1 if unknown."""

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
    """Voters record of a control batch that changes the voters."""


class ResponseReceived(NamedTuple):
    """Response to a request of this node."""

    peer: int
    request: RaftRequest
    response: AnyRaftResponse
    batches: tuple[FetchedRaftBatch, ...] = ()


class RequestRejected(NamedTuple):
    """Rejection of a whole request, or a peer without a suitable version (UNSUPPORTED_VERSION)."""

    peer: int
    request: RaftRequest
    error: ErrorCode


class RequestFailed(NamedTuple):
    """A request of ours got no answer."""

    peer: int
    request: RaftRequest


class PeerConnectionRefused(NamedTuple):
    """The port of a peer refused a connection: its process ended, or has not started yet."""

    peer: int


class SnapshotChunkReceived(NamedTuple):
    """A part of the leader's snapshot came, as it was asked for: the leader lives."""


class SnapshotLoaded(NamedTuple):
    """Completion of the leader's snapshot; `Ready.truncate_to_snapshot` tells whether it replaces the log (R-235)."""

    end_offset: int
    epoch: int
    voters: VotersRecord | None = None


class SnapshotCreated(NamedTuple):
    """A snapshot was written here, or old ones went: those there are, and where the log begins now."""

    log_start_offset: int
    snapshots: tuple[tuple[int, int], ...]


class Resign(NamedTuple):
    """The node stops: resign the leadership (R-210)."""


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
    """Response to a pending request."""

    pending_request: Any
    response: AnyRaftResponse


@dataclass(slots=True)
class Ready:
    """Actions of one step, in this order: persist state, truncate or reset, append; then send messages."""

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
    """Violation by another node, which was ignored and should be logged."""
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
