"""The states of a raft node: what each knows besides the log, and from which one may become which.

Source: ``QuorumState.java`` and the ``EpochState`` classes (apache/kafka 4.3.1; KIP-595, KIP-996).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.controller.raft.state_machine.events import NO_NODE_ID, AddVoter, QueryKRaftVersions, RemoveVoter, ReplicaKey
from ottla.wire.messages.control_records import VotersRecordVoter

NO_DEADLINE_MS = float("inf")


@dataclass(slots=True)
class EpochElection:
    """Who has answered so far (R206)."""

    votes: dict[int, bool] = field(default_factory=dict)
    unreachable_voters: set[int] = field(default_factory=set)
    """Who could not be asked."""

    def clear_rejection(self, voter: int, asked: dict[int, float]) -> None:
        """Who refused, now asks itself and cannot win has lost the leader as well by now: it may answer otherwise."""
        if self.votes.get(voter) is False:
            del self.votes[voter]
            asked.pop(voter, None)

    def is_vote_granted(self, majority: int) -> bool:
        """Whether enough said yes."""
        return sum(self.votes.values()) >= majority

    def is_vote_rejected(self, voters_count: int, majority: int) -> bool:
        """Whether enough said no that the rest cannot make a majority."""
        refused = sum(1 for granted in self.votes.values() if not granted)
        return voters_count - refused < majority


@dataclass(slots=True)
class UnattachedState:
    """Knows of no leader it could follow; a vote may have been given in this epoch."""

    deadline_ms: float


@dataclass(slots=True)
class ProspectiveState:
    """Asks whether an election would be won, before it disturbs anybody with a new epoch (KIP-996)."""

    deadline_ms: float
    election: EpochElection = field(default_factory=EpochElection)


@dataclass(slots=True)
class CandidateState:
    """Asks for votes in a new epoch."""

    deadline_ms: float
    election: EpochElection = field(default_factory=EpochElection)


@dataclass(slots=True)
class ReplicaProgress:
    """How far a replica's log reaches, as the leader knows."""

    end_offset: int = -1
    last_fetch_ms: float = -1
    last_caught_up_ms: float = -1
    last_fetch_leader_end_offset: int = -1
    """Where the leader's log ended at the last fetch."""


@dataclass(slots=True)
class PendingVoterChange:
    """A change of the voters that is not finished: there is one at a time (R246)."""

    pending_request: Any
    """None once it is answered."""
    request: AddVoter | RemoveVoter
    deadline_ms: float
    versions_query: QueryKRaftVersions | None = None
    """What the new voter is being asked, until it has answered."""
    offset: int = -1
    """Where the Voters record stands that makes the change, once it does."""


@dataclass(slots=True)
class RaftLeaderState:
    """Appends; commits what a majority has."""

    epoch_start_offset: int
    deadline_ms: float
    """When it resigns, unless a majority fetches before (check quorum)."""
    granting_voters: tuple[int, ...] = ()
    replicas: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_voters: set[int] = field(default_factory=set)
    """Voters that fetched since the deadline was last moved."""
    pending_change: PendingVoterChange | None = None
    voter_updates: dict[int, VotersRecordVoter] = field(default_factory=dict)
    """kraft.version 0: what the voters said of themselves; it takes all of them to raise the version (R244)."""


@dataclass(slots=True)
class RaftFollowerState:
    """Fetches from a leader."""

    leader_id: int
    deadline_ms: float
    has_fetched_from_leader: bool = False
    """Whether a fetch from this leader has succeeded: then it lives, and its rivals get no pre-vote (R212)."""
    skips_election_delay: bool = False
    """Whether it is not to wait for others once its time is over."""
    voter_request_due_ms: float = NO_DEADLINE_MS
    """When it may tell the leader again where it listens, or ask to become a voter (R249, R250)."""
    has_updated_leader: bool = False
    """kraft.version 0: the leader knows where this node listens."""


@dataclass(slots=True)
class ResignedState:
    """Was the leader of this epoch and tells the others that it is not any more."""

    deadline_ms: float
    preferred_successors: tuple[ReplicaKey, ...] = ()
    acknowledged_voters: set[int] = field(default_factory=set)


EpochState = UnattachedState | ProspectiveState | CandidateState | RaftLeaderState | RaftFollowerState | ResignedState

LEGAL_TRANSITIONS: dict[type, frozenset[type]] = {
    UnattachedState: frozenset({UnattachedState, ProspectiveState, RaftFollowerState}),
    ProspectiveState: frozenset({ProspectiveState, CandidateState, RaftFollowerState, UnattachedState}),
    CandidateState: frozenset({RaftLeaderState, ProspectiveState, RaftFollowerState, UnattachedState}),
    RaftLeaderState: frozenset({ResignedState, UnattachedState, RaftFollowerState}),
    RaftFollowerState: frozenset({ProspectiveState, RaftFollowerState, UnattachedState}),
    ResignedState: frozenset({UnattachedState, RaftFollowerState}),
}
"""Within its epoch a leader only ever becomes Resigned; a higher epoch makes anybody Unattached or Follower."""

PERSISTED_STATES = frozenset({UnattachedState, CandidateState, RaftLeaderState, RaftFollowerState})
"""States whose beginning is written to quorum-state (the others say nothing new that must survive)."""


def leader_id_of(state: EpochState, me: int) -> int:
    """Who leads, as this state knows; -1 for nobody."""
    match state:
        case RaftLeaderState():
            return me
        case RaftFollowerState(leader_id):
            return leader_id
        case _:
            return NO_NODE_ID
