"""What goes into the raft machine and what it asks for: plain values, no wire format and no file in sight.

The rule numbers (R201 on) in this folder are those of the project's list of Kafka's replication rules; each stands
beside what it demands. Source: ``KafkaRaftClient.java`` and its schemas (apache/kafka 4.3.1; KIP-595, 853, 996, 1166).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl
from ottla.wire.schema import ZERO_UUID, Message

NOBODY = -1


class ReplicaKey(NamedTuple):
    """A replica of the metadata log; without a directory where that is not known (kraft.version 0)."""

    id: int
    directory_id: bytes = ZERO_UUID

    def is_same(self, other: ReplicaKey) -> bool:
        """Whether both may be one replica: a directory that is not known matches any."""
        known = ZERO_UUID not in (self.directory_id, other.directory_id)
        return self.id == other.id and (not known or self.directory_id == other.directory_id)

    def names(self, replica: ReplicaKey) -> bool:
        """Whether this key, of a voter set, a vote or a request, means ``replica``: without a directory any (R201).

        It is not symmetrical: an entry with a directory does not mean a replica that names none (R245).
        """
        return self.id == replica.id and self.directory_id in (ZERO_UUID, replica.directory_id)


class Age(IntEnum):
    """Whether a voter of a fixed set remembers all it ever said (see ``newborn``)."""

    GROWN = 0
    NEWBORN = 1
    """Nothing was here, and nothing was heard of a quorum."""
    LEARNING = 2
    """Nothing was here, and there is a quorum."""


class HardState(NamedTuple):
    """What must be on disk before anything that follows from it is said (R202)."""

    epoch: int
    leader_id: int = NOBODY
    voted: ReplicaKey | None = None
    age: Age = Age.GROWN
    """Whoever gives another one its vote is grown with it: nothing says so any more."""


# ------------------------------------------------------------------ what comes in


class Start(NamedTuple):
    """The log was opened: begin (R204, R205)."""


class Tick(NamedTuple):
    """Time has passed."""


class Propose(NamedTuple):
    """As leader: append records that were made a batch of already."""

    batch: Any
    records_count: int


class Synced(NamedTuple):
    """Everything below ``end_offset`` is on disk here."""

    end_offset: int


class Vote(NamedTuple):
    """Will you have me? ``pre``: would you? (KIP-996)."""

    candidate: ReplicaKey
    epoch: int
    last_epoch: int
    end_offset: int
    pre: bool = False
    voter: ReplicaKey | None = None
    """Whom it is meant for."""


class BeginEpoch(NamedTuple):
    """A leader makes itself known."""

    leader_id: int
    epoch: int
    voter: ReplicaKey | None = None


class EndEpoch(NamedTuple):
    """A leader goes; who is best to follow it comes first in ``successors``."""

    leader_id: int
    epoch: int
    successors: tuple[ReplicaKey, ...] = ()


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
    """Make a replica a voter (R246-R248)."""

    voter: ReplicaKey
    endpoints: tuple[ctl.Endpoint, ...]
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    """Let a replica vote no more (R246)."""

    voter: ReplicaKey


class UpdateVoter(NamedTuple):
    """A voter says where it listens and which kraft.versions it speaks (R249)."""

    voter: ReplicaKey
    epoch: int
    endpoints: tuple[ctl.Endpoint, ...]
    min_version: int
    max_version: int


class RaiseVersion(NamedTuple):
    """Raise kraft.version (R244); asked by this node's own controller only."""

    level: int
    validate_only: bool = False


class AskVersions(NamedTuple):
    """Which kraft.versions does the replica speak that shall become a voter? It is asked at these endpoints (R248)."""

    voter: ReplicaKey
    endpoints: tuple[ctl.Endpoint, ...]


Request = (
    Vote
    | BeginEpoch
    | EndEpoch
    | Fetch
    | FetchSnapshot
    | AddVoter
    | RemoveVoter
    | UpdateVoter
    | RaiseVersion
    | AskVersions
)


class Asked(NamedTuple):
    """A request came in; its answer goes to ``ticket``."""

    ticket: Any
    request: Request


class Answer(NamedTuple):
    """Every answer says who leads, as far as is known."""

    error: ErrorCode
    epoch: int
    leader_id: int
    granted: bool = False
    """Of a Vote."""


class FetchAnswer(NamedTuple):
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


class SnapshotAnswer(NamedTuple):
    """Bytes of a snapshot from ``position`` on, or why not."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot: tuple[int, int] = (-1, -1)
    """(end offset, epoch)."""
    size_bytes: int = 0
    """Of the whole snapshot."""
    position: int = 0


class VoterAnswer(NamedTuple):
    """What became of a change of the voters."""

    error: ErrorCode
    epoch: int = -1
    leader_id: int = NOBODY
    message: str | None = None


class VersionsAnswer(NamedTuple):
    """The kraft.versions another node speaks; -1 where it does not say."""

    error: ErrorCode
    min_version: int = -1
    max_version: int = -1
    epoch: int = -1
    leader_id: int = NOBODY


AnyAnswer = Answer | FetchAnswer | SnapshotAnswer | VoterAnswer | VersionsAnswer


class Batch(NamedTuple):
    """A batch of the leader's log, as a follower received it."""

    first_offset: int
    last_offset: int
    epoch: int
    raw: Any
    voters: ctl.VotersRecord | None = None
    """Where it is a control batch that changes them."""


class Answered(NamedTuple):
    """What came back for a request of ours."""

    peer: int
    request: Request
    answer: AnyAnswer
    batches: tuple[Batch, ...] = ()


class Refused(NamedTuple):
    """A request of ours was refused as a whole, or the peer speaks no version that can say it (UNSUPPORTED_VERSION)."""

    peer: int
    request: Request
    error: ErrorCode


class Unreachable(NamedTuple):
    """A request of ours got no answer."""

    peer: int
    request: Request


class Gone(NamedTuple):
    """A peer's port refuses: its process is gone, or not there yet."""

    peer: int


class SnapshotPart(NamedTuple):
    """A part of the leader's snapshot came, as it was asked for: the leader lives."""


class SnapshotLoaded(NamedTuple):
    """The leader's snapshot lies here whole; `Ready.start_over` says whether it takes the log's place (R235)."""

    end_offset: int
    epoch: int
    voters: ctl.VotersRecord | None = None


class Covered(NamedTuple):
    """A snapshot was written here, or old ones went: those there are, and where the log begins now."""

    start: int
    snapshots: tuple[tuple[int, int], ...]


class Resign(NamedTuple):
    """The node stops: let go of leadership (R210)."""


Event = (
    Start
    | Tick
    | Propose
    | Synced
    | Asked
    | Answered
    | Refused
    | Unreachable
    | Gone
    | SnapshotPart
    | SnapshotLoaded
    | Covered
    | Resign
)


# ------------------------------------------------------------------ what goes out


class Append(NamedTuple):
    """A batch for the log: ours (raw bytes or control records, stamped with ``epoch``), or the leader's as it is."""

    first_offset: int
    records_count: int
    epoch: int
    batch: Any = None
    controls: tuple[Message, ...] = ()
    verbatim: bool = False


class Send(NamedTuple):
    """A request for another voter, or, where ``peer`` is below 0, for a bootstrap server (-2, -3, ...)."""

    peer: int
    request: Request


class Reply(NamedTuple):
    """An answer for whoever asked."""

    ticket: Any
    answer: AnyAnswer


@dataclass(slots=True)
class Ready:
    """What one step wants done, in this order: state on disk, cut or start over, append; then it may be told."""

    hard_state: HardState | None = None
    truncate: int | None = None
    append: list[Append] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    committed: int | None = None
    """The new high watermark, where it moved."""
    load_snapshot: tuple[int, int] | None = None
    """(end offset, epoch): fetch this snapshot from the leader, by `FetchSnapshot` after `FetchSnapshot`.

    Each answer is handed in as it comes (`Answered`), and `SnapshotLoaded` at last. Once the machine's ``loading`` is
    not this snapshot any more (no follower of that leader now, or the leader has it no more) it will not be taken.
    """
    doubt: str | None = None
    """What another node said that cannot be, and was not believed: worth a line in the log."""
    news: tuple[int, str] | None = None
    """(level, text): what is worth a line in the log besides."""
    start_over: tuple[int, int] | None = None
    """(end offset, epoch) of the snapshot that was loaded: the log is emptied, and begins and ends there."""
