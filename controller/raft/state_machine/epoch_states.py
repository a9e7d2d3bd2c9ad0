"""The states of a raft node: what each knows besides the log, and from which one may become which.

Source: ``QuorumState.java`` and the ``EpochState`` classes (apache/kafka 4.3.1; KIP-595, KIP-996).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    AddVoter,
    Fetch,
    QueryKRaftVersions,
    RemoveVoter,
    ReplicaKey,
)
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.messages.control_records import VotersRecordVoter

NO_DEADLINE_MS = float("inf")
OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""An observer that did not fetch for so long is forgotten, and listed no more (``OBSERVER_SESSION_TIMEOUT_MS``)."""
MAX_OBSERVERS = 1000
"""Maximum number of observers: ids are easily forged. Kafka bounds them by time only, on DescribeQuorum."""


@dataclass(slots=True)
class EpochElection:
    """Votes of an election (R-206)."""

    votes: dict[int, bool] = field(default_factory=dict)
    unreachable_voters: set[int] = field(default_factory=set)
    """Voters without a connection."""

    def record_vote(self, voter: int, *, granted: bool) -> None:
        """Record the answer of a voter; a later one replaces it."""
        self.votes[voter] = granted

    def clear_rejection(self, voter: int) -> bool:
        """Forget the rejection of a voter that asks for votes itself and cannot win; return whether there was one.

        It has lost the leader as well by now, and may answer otherwise.
        """
        if self.votes.get(voter) is not False:
            return False
        del self.votes[voter]
        return True

    def is_vote_granted(self, majority: int) -> bool:
        """Return True if a majority granted its vote."""
        return sum(self.votes.values()) >= majority

    def is_vote_rejected(self, voters_count: int, majority: int) -> bool:
        """Return True if so many rejected that a majority is impossible."""
        refused = sum(1 for granted in self.votes.values() if not granted)
        return voters_count - refused < majority


@dataclass(slots=True)
class UnattachedState:
    """Knows of no leader it could follow; a vote may have been given in this epoch."""

    deadline_ms: float


@dataclass(slots=True)
class ProspectiveState:
    """State that requests pre-votes before it disturbs others with a new epoch (KIP-996)."""

    deadline_ms: float
    election: EpochElection = field(default_factory=EpochElection)


@dataclass(slots=True)
class CandidateState:
    """Asks for votes in a new epoch."""

    deadline_ms: float
    election: EpochElection = field(default_factory=EpochElection)


@dataclass(slots=True)
class ReplicaProgress:
    """Progress of a replica as the leader knows it."""

    end_offset: int = -1
    last_fetch_ms: float = -1
    last_caught_up_ms: float = -1
    last_fetch_leader_end_offset: int = -1
    """The leader's log end offset at the last fetch."""

    def record_fetch(self, offset: int, leader_end_offset: int, now_ms: float) -> None:
        """Record a fetch from ``offset``, which may be lower than that of the fetch before (R-219)."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.last_fetch_leader_end_offset <= offset:
            # it has what there was then
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.last_fetch_leader_end_offset = leader_end_offset
        self.end_offset = offset
        self.last_fetch_ms = now_ms


@dataclass(slots=True)
class PendingVoterChange:
    """A change of the voters that is not finished: there is one at a time (R-246)."""

    pending_request: Any
    """None once it has a response."""
    request: AddVoter | RemoveVoter
    deadline_ms: float
    versions_query: QueryKRaftVersions | None = None
    """Pending query of the new voter's versions."""
    offset: int = -1
    """Offset of the change's Voters record; -1 before."""

    def complete_query(self, query: QueryKRaftVersions) -> bool:
        """Complete the pending query; return True if it is ``query``."""
        if self.versions_query is not query:
            return False
        self.versions_query = None
        return True

    def record_append(self, offset: int) -> None:
        """Record the offset of the Voters record."""
        self.offset = offset

    def pop_request(self) -> Any:
        """Remove and return the request that waits for a response; None if it was answered."""
        request, self.pending_request = self.pending_request, None
        return request


@dataclass(slots=True)
class RaftLeaderState:
    """Appends; commits what a majority has."""

    epoch_start_offset: int
    deadline_ms: float
    """Time at which it resigns, unless a majority fetches before (check quorum)."""
    granting_voters: tuple[int, ...] = ()
    replicas: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_voters: set[int] = field(default_factory=set)
    """Voters that fetched since the deadline was last moved."""
    pending_change: PendingVoterChange | None = None
    voter_updates: dict[int, VotersRecordVoter] = field(default_factory=dict)
    """kraft.version 0: entries of the voters about themselves, all of which are needed to raise the version (R-244)."""

    def extend_check_quorum(self, deadline_ms: float) -> None:
        """Move the deadline of the check quorum; a sole voter has none."""
        if self.deadline_ms < NO_DEADLINE_MS:
            self.deadline_ms = deadline_ms

    def record_voter_update(self, voter: VotersRecordVoter) -> None:
        """Record a voter's entry about itself (kraft.version 0)."""
        self.voter_updates[voter.voter_id] = voter

    def start_change(self, change: PendingVoterChange) -> None:
        """Start a change of the voters: no other is accepted until it is completed."""
        self.pending_change = change

    def complete_change(self) -> PendingVoterChange | None:
        """End the pending change, if any, and return it."""
        change, self.pending_change = self.pending_change, None
        return change

    def update_voters(self, voters: tuple[ReplicaKey, ...], check_quorum_deadline_ms: float) -> None:
        """Keep what is known of the replicas under a new set of voters; a sole voter needs no check quorum."""
        for voter in voters:
            unnamed = self.replicas.pop(ReplicaKey(voter.id), None)
            if unnamed is not None:
                self.replicas[voter] = unnamed
        self.fetched_voters &= {v.id for v in voters}
        if len(voters) == 1:
            self.deadline_ms = NO_DEADLINE_MS
        elif self.deadline_ms == NO_DEADLINE_MS:
            self.deadline_ms = check_quorum_deadline_ms

    def update_replica_progress(self, fetch: Fetch, end: int, now_ms: float, voters: VoterSetHistory) -> None:
        """Record that a replica's log reaches to where it fetches from; ``end``: of the log here."""
        if fetch.replica.id < 0:
            return
        at = voters.find_voter(fetch.replica.id)
        key = at if at is not None and at.identifies(fetch.replica) else fetch.replica
        progress = self.replicas.get(key)
        if progress is None:
            self._remove_inactive_observers(now_ms, voters)
            progress = self.replicas[key] = ReplicaProgress()
        progress.record_fetch(fetch.offset, end, now_ms)

    def _remove_inactive_observers(self, now_ms: float, voters: VoterSetHistory) -> None:
        """Make room for one more: those silent for long are removed, and the longest silent where there are too many.

        A live observer fetches at least every half second, and so is never the longest silent.
        """
        observers = sorted((p.last_fetch_ms, k) for k, p in self.replicas.items() if k not in voters.current)
        too_many = len(observers) - MAX_OBSERVERS + 1
        for number, (fetched_ms, key) in enumerate(observers):
            if number >= too_many and now_ms - fetched_ms < OBSERVER_SESSION_TIMEOUT_MS:
                break
            del self.replicas[key]

    def remove_former_directories(self, replica: ReplicaKey, voters: VoterSetHistory) -> None:
        """Forget other directories of the replica's id: their progress does not count for the new directory.

        Kafka adds a replica that was caught up within the last hour if its address responds, also after its disk was
        replaced. If that makes two of two voters, no record can be committed any more.
        """
        if replica.id < 0 or replica.directory_id == ZERO_UUID:
            return
        for key in [
            k for k in self.replicas if k.id == replica.id and not k.may_be_same(replica) and k not in voters.current
        ]:
            del self.replicas[key]

    def record_fetched_voter(self, me: ReplicaKey, voters: VoterSetHistory, replica: ReplicaKey) -> bool:
        """Record a fetch; return whether a majority has fetched since the check quorum began (R-228)."""
        voter = voters.find_voter(replica.id)
        if voter is None or not voter.identifies(replica) or replica.id == me.id:
            return False
        self.fetched_voters.add(replica.id)
        needed = voters.majority_size - (1 if voters.is_voter(me) else 0)
        if len(self.fetched_voters) < needed:
            return False
        self.fetched_voters.clear()
        return True


@dataclass(slots=True)
class RaftFollowerState:
    """Fetches from a leader."""

    leader_id: int
    deadline_ms: float
    has_fetched_from_leader: bool = False
    """True if a fetch from this leader has succeeded: then it lives, and its rivals get no pre-vote (R-212)."""
    skips_election_delay: bool = False
    """True if it is not to wait for others once its time is over."""
    voter_request_due_ms: float = NO_DEADLINE_MS
    """Earliest time of the next update or join request to the leader (R-249, R-250)."""
    has_updated_leader: bool = False
    """kraft.version 0: the leader knows where this node listens."""

    def reset_fetch_timeout(self, deadline_ms: float) -> None:
        """Record a successful fetch: the leader is alive."""
        self.deadline_ms, self.has_fetched_from_leader, self.skips_election_delay = deadline_ms, True, False

    def override_fetch_timeout(self, deadline_ms: float, *, leader_lost: bool) -> None:
        """Request votes at ``deadline_ms`` without a further delay, unless the leader responds before."""
        self.deadline_ms, self.skips_election_delay = deadline_ms, True
        if leader_lost:
            self.has_fetched_from_leader = False

    def reset_update_voter_set_period(self, due_ms: float) -> None:
        """Set the earliest time of the next update to the leader."""
        self.voter_request_due_ms = due_ms

    def set_has_updated_leader(self) -> None:
        """Record that the leader knows where this node listens, or does not want to know."""
        self.has_updated_leader = True


@dataclass(slots=True)
class ResignedState:
    """State of a former leader of this epoch that notifies the others of its resignation."""

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
"""Within its epoch a leader can only become Resigned; with a higher epoch every state can become Unattached or
Follower.
"""

PERSISTED_STATES = frozenset({UnattachedState, CandidateState, RaftLeaderState, RaftFollowerState})
"""States whose start is written to quorum-state (the others have no new durable state)."""


def leader_id_of(state: EpochState, me: int) -> int:
    """Return the leader that this state knows; -1 for none."""
    match state:
        case RaftLeaderState():
            return me
        case RaftFollowerState(leader_id):
            return leader_id
        case _:
            return NO_NODE_ID
