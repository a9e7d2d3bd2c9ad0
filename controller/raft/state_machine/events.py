"""Events and actions of the Raft state machine: plain values without wire format or files.

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
    """Key of a replica of the metadata log: node id, and directory id, zero where it is unknown (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID

    def may_be_same(self, other: ReplicaKey) -> bool:
        """Return True if both keys have one node id, and the same directory id unless one of them has none."""
        known = ZERO_UUID not in (self.directory_id, other.directory_id)
        return self.id == other.id and (not known or self.directory_id == other.directory_id)

    def identifies(self, replica: ReplicaKey) -> bool:
        """Return True if this key matches ``replica``; without a directory id it matches any directory (R-201).

        It is not symmetrical: a key with a directory id does not match a replica without one (R-245).
        """
        return self.id == replica.id and self.directory_id in (ZERO_UUID, replica.directory_id)


class VoterState(IntEnum):
    """Recovery state of a static voter after a loss of its disk (`lost_disk`): only NORMAL ones vote without limits."""

    NORMAL = 0
    EMPTY_LOG = 1
    """The disk was empty at start, and no quorum is known to exist."""
    RECOVERING = 2
    """The disk was empty at start, and a quorum exists: the voter must learn epoch and log before it votes."""


class HardState(NamedTuple):
    """Epoch, leader, vote and `VoterState`, durable in the quorum-state file before dependent messages (R-202)."""

    epoch: int
    leader_id: int = NO_NODE_ID
    voted_key: ReplicaKey | None = None
    voter_state: VoterState = VoterState.NORMAL
    """NORMAL: no votes can have been lost with the disk, or they were recovered."""


# ------------------------------------------------------------------ events


class RaftStarted(NamedTuple):
    """Event at start: the log and quorum-state were loaded (R-204, R-205). It must be the first one."""


class Tick(NamedTuple):
    """Event of the timer: a deadline may have passed."""


class Propose(NamedTuple):
    """Event on the leader: append ``batch``, ``records_count`` records that the controller has encoded as one batch."""

    batch: Any
    records_count: int


class LogFlushed(NamedTuple):
    """Event that this node's log below ``end_offset`` (exclusive) is flushed, or needs no flush: it cannot vote."""

    end_offset: int


class Vote(NamedTuple):
    """Vote request of a candidate for ``epoch``, with last epoch and end offset of its log; or a pre-vote (KIP-996)."""

    candidate: ReplicaKey
    epoch: int
    last_epoch: int
    end_offset: int
    pre_vote: bool = False
    voter: ReplicaKey | None = None
    """Voter to which the request is addressed; None in older versions."""


class BeginEpoch(NamedTuple):
    """BeginQuorumEpoch request: the leader of ``epoch`` announces itself to ``voter`` (None in older versions)."""

    leader_id: int
    epoch: int
    voter: ReplicaKey | None = None


class EndEpoch(NamedTuple):
    """EndQuorumEpoch request: the leader of ``epoch`` resigns; preferred successors, the best first."""

    leader_id: int
    epoch: int
    preferred_successors: tuple[ReplicaKey, ...] = ()


class Fetch(NamedTuple):
    """Fetch of a voter or observer; ``last_epoch``: of its log's last record; ``high_watermark``: -1 if unknown."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int
    high_watermark: int = -1
    max_wait_ms: int = 0
    max_bytes: int = 1024 * 1024
    """Limit of the response; the first batch is returned even if it is larger."""


class FetchSnapshot(NamedTuple):
    """FetchSnapshot request of a voter or observer: bytes of a snapshot from ``position`` (in bytes) on."""

    replica: ReplicaKey
    epoch: int
    snapshot: tuple[int, int]
    """Snapshot id: (end offset, epoch)."""
    position: int
    max_bytes: int = 1024 * 1024
    size_bytes: int = -1
    """Size of the snapshot on this node in bytes, set by the driver; -1 if there is no such snapshot."""


class AddVoter(NamedTuple):
    """AddRaftVoter request: add a replica to the voter set; the response is at append or at commit (R-246 to R-248)."""

    voter: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    """RemoveRaftVoter request: remove a replica from the voter set (R-246)."""

    voter: ReplicaKey


class UpdateVoter(NamedTuple):
    """UpdateRaftVoter request of a voter: set its endpoints and range of supported kraft.versions (R-249)."""

    voter: ReplicaKey
    epoch: int
    endpoints: tuple[Endpoint, ...]
    min_version: int
    max_version: int


class UpgradeKRaftVersion(NamedTuple):
    """Upgrade of kraft.version to ``level`` (R-244), requested by this node's own controller for UpdateFeatures."""

    level: int
    validate_only: bool = False


class QueryKRaftVersions(NamedTuple):
    """ApiVersions request of the leader to a replica that becomes a voter, for its supported kraft.versions (R-248)."""

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
    """Event for a request of another node or a local `UpgradeKRaftVersion`; the response is for ``pending_request``."""

    pending_request: Any
    request: RaftRequest


class RaftResponse(NamedTuple):
    """Response to Vote, BeginQuorumEpoch or EndQuorumEpoch: the responder's epoch and leader id (-1 if unknown)."""

    error: ErrorCode
    epoch: int
    leader_id: int
    vote_granted: bool = False
    """True if the vote is granted; only for Vote."""


class RaftFetchResponse(NamedTuple):
    """Response to a Fetch of the metadata log: records, a diverging epoch, a snapshot id or an error."""

    error: ErrorCode
    epoch: int
    leader_id: int
    offset: int = -1
    """Offset from which the driver reads batches (maybe none yet), or received ones begin; -1 in other responses."""
    high_watermark: int = -1
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) to which the follower truncates its log; None if it does not diverge."""
    snapshot: tuple[int, int] | None = None
    """(end offset, epoch) of the snapshot that the follower has to load first; None if it needs none."""


class RaftFetchSnapshotResponse(NamedTuple):
    """Response to FetchSnapshot: bytes of a snapshot from ``position`` on, or an error."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: tuple[int, int] = (-1, -1)
    """Snapshot id: (end offset, epoch)."""
    size_bytes: int = 0
    """Size of the whole snapshot."""
    position: int = 0


class VoterChangeResponse(NamedTuple):
    """Response to AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter or `UpgradeKRaftVersion`."""

    error: ErrorCode
    epoch: int = -1
    leader_id: int = NO_NODE_ID
    message: str | None = None


class KRaftVersionsResponse(NamedTuple):
    """Response to `QueryKRaftVersions`: range of kraft.versions that the other node supports; -1 if unknown."""

    error: ErrorCode
    min_version: int = -1
    max_version: int = -1
    epoch: int = -1
    leader_id: int = NO_NODE_ID


AnyRaftResponse = (
    RaftResponse | RaftFetchResponse | RaftFetchSnapshotResponse | VoterChangeResponse | KRaftVersionsResponse
)


class FetchedRaftBatch(NamedTuple):
    """Batch (bytes ``raw``) in the leader's Fetch response: offsets (last one inclusive) and epoch of its header."""

    first_offset: int
    last_offset: int
    epoch: int
    raw: Any
    voters: VotersRecord | None = None
    """VotersRecord of a control batch that changes the voter set; None for other batches."""


class ResponseReceived(NamedTuple):
    """Event for the response of node ``peer`` to ``request`` of this node; ``batches``: those of a Fetch response."""

    peer: int
    request: RaftRequest
    response: AnyRaftResponse
    batches: tuple[FetchedRaftBatch, ...] = ()


class RequestRejected(NamedTuple):
    """Event for an error response to a whole request, or (UNSUPPORTED_VERSION) a peer without a suitable version."""

    peer: int
    request: RaftRequest
    error: ErrorCode


class RequestFailed(NamedTuple):
    """Event for a request of this node without a response, such as after a lost connection or a timeout."""

    peer: int
    request: RaftRequest


class PeerConnectionRefused(NamedTuple):
    """Event that a peer's port refused a connection of this node: its process has ended, or has not started yet."""

    peer: int


class SnapshotChunkReceived(NamedTuple):
    """Event that a chunk of the leader's snapshot was received; a `ResponseReceived` for it has the same effect."""


class SnapshotLoaded(NamedTuple):
    """Event that the leader's snapshot is downloaded; the step sets `Ready.truncate_to_snapshot` if wanted (R-235)."""

    end_offset: int
    epoch: int
    voters: VotersRecord | None = None


class SnapshotCreated(NamedTuple):
    """Event that this node wrote or deleted snapshots; ``snapshots``: ids (end offset, epoch) of all that exist now."""

    log_start_offset: int
    snapshots: tuple[tuple[int, int], ...]


class Resign(NamedTuple):
    """Event that this node is to resign its leadership, as it stops (R-210); no effect on other states."""


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


# ------------------------------------------------------------------ actions


class LogAppend(NamedTuple):
    """Action: append a batch: the controller's (encoded), control records (``controls``), or the leader's, verbatim."""

    first_offset: int
    records_count: int
    epoch: int
    batch: Any = None
    controls: tuple[Message, ...] = ()
    verbatim: bool = False


class OutboundRequest(NamedTuple):
    """Action: send a request to node ``peer``, or, if ``peer`` is -2 or below, to a bootstrap server."""

    peer: int
    request: RaftRequest


class OutboundResponse(NamedTuple):
    """Action: send the response to ``pending_request``, the object that came with `RequestReceived`."""

    pending_request: Any
    response: AnyRaftResponse


@dataclass(slots=True)
class Ready:
    """Actions of a step, in order: persist state, truncate (to an end offset) or reset, append; then send messages."""

    hard_state: HardState | None = None
    truncate: int | None = None
    appends: list[LogAppend] = field(default_factory=list)
    sends: list[OutboundRequest] = field(default_factory=list)
    replies: list[OutboundResponse] = field(default_factory=list)
    committed: int | None = None
    """The new high watermark; None if it has not changed."""
    load_snapshot: tuple[int, int] | None = None
    """(end offset, epoch) of a snapshot to download from the leader by repeated `FetchSnapshot`.

    The driver passes each response on (`ResponseReceived`) and `SnapshotLoaded` at the end. It cancels the download
    once the machine's ``loading_snapshot`` is another one (leader changed, or the leader has deleted the snapshot).
    """
    protocol_violation: str | None = None
    """Protocol violation by another node, which was ignored and should be logged."""
    log_message: tuple[int, str] | None = None
    """(level, text) of a message to log."""
    truncate_to_snapshot: tuple[int, int] | None = None
    """(end offset, epoch) of the downloaded snapshot: the log is emptied and starts at its end offset."""

    def report(self, level: int, text: str) -> None:
        """Set the message that the driver logs after the step; ``level``: of `logging`.

        It replaces an earlier message.
        """
        self.log_message = (level, text)

    def report_violation(self, text: str) -> None:
        """Set the text about another node's protocol violation, which the driver logs after the step."""
        self.protocol_violation = text
