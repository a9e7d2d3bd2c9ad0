"""Raft states of a node within an epoch, with their data, and the legal transitions between them.

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
"""Time without a fetch after which DescribeQuorum does not list an observer; the leader removes it for the next one."""
MAX_OBSERVERS = 1000
"""Maximum number of observers: ids are easily forged. Kafka bounds them by time only, on DescribeQuorum."""


@dataclass(slots=True)
class EpochElection:
    """Votes in an election or pre-vote (R-206), the node's own included: True for a granted one, by voter id."""

    votes: dict[int, bool] = field(default_factory=dict)
    unreachable_voters: set[int] = field(default_factory=set)
    """Ids of voters to which no connection could be opened."""

    def record_vote(self, voter: int, *, granted: bool) -> None:
        """Record the vote of a voter; a later one replaces it."""
        self.votes[voter] = granted

    def clear_rejection(self, voter: int) -> bool:
        """Remove the rejection by a voter that requests pre-votes itself and got none; return True if it had rejected.

        That voter has lost the leader as well by now, and may grant a vote when it is asked again.
        """
        if self.votes.get(voter) is not False:
            return False
        del self.votes[voter]
        return True

    def is_vote_granted(self, majority: int) -> bool:
        """Return True if at least ``majority`` voters granted their vote."""
        return sum(self.votes.values()) >= majority

    def is_vote_rejected(self, voters_count: int, majority: int) -> bool:
        """Return True if so many of ``voters_count`` voters rejected that ``majority`` votes are impossible."""
        refused = sum(1 for granted in self.votes.values() if not granted)
        return voters_count - refused < majority


@dataclass(slots=True)
class UnattachedState:
    """Unattached: no leader of this epoch is known, or none whose address is known; this node may have voted in it.

    ``deadline_ms``: monotonic time of the next election; for a RECOVERING voter, of the log message that no leader is
    found, later of the next restart of its fetches; infinite for an observer.
    """

    deadline_ms: float


@dataclass(slots=True)
class ProspectiveState:
    """Prospective: requests pre-votes in its epoch, before it disturbs the quorum with a new epoch (KIP-996).

    ``deadline_ms``: monotonic time at which the pre-vote ends without a result.
    """

    deadline_ms: float
    election: EpochElection = field(default_factory=EpochElection)


@dataclass(slots=True)
class CandidateState:
    """Candidate: requests votes in a new epoch. ``deadline_ms``: monotonic time at which the election fails."""

    deadline_ms: float
    election: EpochElection = field(default_factory=EpochElection)


@dataclass(slots=True)
class ReplicaProgress:
    """Progress of a voter or observer as the leader knows it from the replica's fetches; -1 before the first fetch.

    Times are monotonic, in ms. ``end_offset`` is exclusive: the offset of the last fetch; of the leader itself, the
    offset below which its log is flushed.
    """

    end_offset: int = -1
    last_fetch_ms: float = -1
    last_caught_up_ms: float = -1
    last_fetch_leader_end_offset: int = -1
    """The leader's log end offset at the replica's last fetch."""

    def record_fetch(self, offset: int, leader_end_offset: int, now_ms: float) -> None:
        """Record a fetch from ``offset``, which may be lower than in the previous fetch (R-219).

        A replica is caught up if it fetches from the leader's end; it was so at its previous fetch if it has now all
        records that the leader had then. The last caught-up time is returned by DescribeQuorum.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.last_fetch_leader_end_offset <= offset:
            # it has all records that the leader had at the previous fetch
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.last_fetch_leader_end_offset = leader_end_offset
        self.end_offset = offset
        self.last_fetch_ms = now_ms


@dataclass(slots=True)
class PendingVoterChange:
    """AddRaftVoter or RemoveRaftVoter in progress on the leader; at most one at a time (R-246)."""

    pending_request: Any
    """The request that waits for a response; None once it has one."""
    request: AddVoter | RemoveVoter
    deadline_ms: float
    """Monotonic time of the response REQUEST_TIMED_OUT."""
    versions_query: QueryKRaftVersions | None = None
    """Pending ApiVersions query of the new voter's kraft.versions; None if there is none."""
    offset: int = -1
    """Offset of the VotersRecord of this change; -1 before it is appended."""

    def complete_query(self, query: QueryKRaftVersions) -> bool:
        """Clear the pending ApiVersions query if it is ``query``; return False if it is not (the query is outdated)."""
        if self.versions_query is not query:
            return False
        self.versions_query = None
        return True

    def record_append(self, offset: int) -> None:
        """Store the offset of the change's VotersRecord; the change is complete once the high watermark is above it."""
        self.offset = offset

    def pop_request(self) -> Any:
        """Remove and return the request that waits for a response; None if it already has one."""
        request, self.pending_request = self.pending_request, None
        return request


@dataclass(slots=True)
class RaftLeaderState:
    """Leader of the epoch: appends records and commits those that a majority of the voters has."""

    epoch_start_offset: int
    deadline_ms: float
    """Monotonic time of resignation unless a majority fetches before (check quorum); infinite for a sole voter."""
    granting_voters: tuple[int, ...] = ()
    replicas: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    fetched_voters: set[int] = field(default_factory=set)
    """Ids of voters that have fetched since the check quorum timeout was last reset."""
    pending_change: PendingVoterChange | None = None
    voter_updates: dict[int, VotersRecordVoter] = field(default_factory=dict)
    """kraft.version 0: VotersRecord entries that voters sent about themselves; all are needed to raise it (R-244)."""

    def extend_check_quorum(self, deadline_ms: float) -> None:
        """Postpone the resignation for lack of fetches to ``deadline_ms`` (monotonic); no effect for a sole voter."""
        if self.deadline_ms < NO_DEADLINE_MS:
            self.deadline_ms = deadline_ms

    def record_voter_update(self, voter: VotersRecordVoter) -> None:
        """Record the VotersRecord entry that a voter sent about itself by UpdateRaftVoter (kraft.version 0)."""
        self.voter_updates[voter.voter_id] = voter

    def start_change(self, change: PendingVoterChange) -> None:
        """Store a change of the voter set as the pending one: callers accept no other until it is completed."""
        self.pending_change = change

    def complete_change(self) -> PendingVoterChange | None:
        """Clear the pending voter change and return it; None if there is none. No response is sent here."""
        change, self.pending_change = self.pending_change, None
        return change

    def update_voters(self, voters: tuple[ReplicaKey, ...], check_quorum_deadline_ms: float) -> None:
        """Adapt replica progress and check quorum to the new voter set ``voters``.

        Progress that is stored without a directory id moves to the voter's full key. With one voter there is no check
        quorum deadline; with more after only one before, it is ``check_quorum_deadline_ms`` (monotonic).
        """
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
        """Record the offset of a replica's fetch as its end offset, and the time; a new observer is added.

        ``end``: log end offset of the leader; ``now_ms``: monotonic. A fetch without a replica id (-1) is ignored.
        """
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
        """Free a slot for one observer: remove expired ones, and beyond `MAX_OBSERVERS` those with the oldest fetches.

        A live observer fetches at least every half second, and so is never the one with the oldest fetch.
        """
        observers = sorted((p.last_fetch_ms, k) for k, p in self.replicas.items() if k not in voters.current)
        too_many = len(observers) - MAX_OBSERVERS + 1
        for number, (fetched_ms, key) in enumerate(observers):
            if number >= too_many and now_ms - fetched_ms < OBSERVER_SESSION_TIMEOUT_MS:
                break
            del self.replicas[key]

    def remove_former_directories(self, replica: ReplicaKey, voters: VoterSetHistory) -> None:
        """Remove the progress of non-voters with this node id and another directory id: the disk was replaced.

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
        """Record a voter's fetch for the check quorum; return True, and start anew, if a majority has fetched (R-228).

        False as well for a fetch by an observer. ``me``: the leader, which counts as one of the majority if it is a
        voter.
        """
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
    """Follower: voter or observer that fetches the log from the leader ``leader_id`` of its epoch.

    ``deadline_ms``: monotonic time of the fetch timeout.
    """

    leader_id: int
    deadline_ms: float
    has_fetched_from_leader: bool = False
    """True if a fetch from this leader has succeeded: other candidates get no pre-vote then (R-212)."""
    skips_election_delay: bool = False
    """True if the pre-vote starts at ``deadline_ms`` without a further election delay."""
    voter_request_due_ms: float = NO_DEADLINE_MS
    """Earliest monotonic time (ms) of the next voter change request to the leader (R-249, R-250)."""
    has_updated_leader: bool = False
    """kraft.version 0: True if the leader needs no (further) UpdateRaftVoter from this node."""

    def reset_fetch_timeout(self, deadline_ms: float) -> None:
        """Record a successful fetch from the leader and set the monotonic time of the next fetch timeout."""
        self.deadline_ms, self.has_fetched_from_leader, self.skips_election_delay = deadline_ms, True, False

    def override_fetch_timeout(self, deadline_ms: float, *, leader_lost: bool) -> None:
        """Set the monotonic time at which this node requests pre-votes unless the leader responds before.

        ``leader_lost``: True if other candidates get pre-votes from this node from now on.
        """
        self.deadline_ms, self.skips_election_delay = deadline_ms, True
        if leader_lost:
            self.has_fetched_from_leader = False

    def reset_update_voter_set_period(self, due_ms: float) -> None:
        """Set the earliest monotonic time of the next UpdateRaftVoter or AddRaftVoter request to the leader."""
        self.voter_request_due_ms = due_ms

    def set_has_updated_leader(self) -> None:
        """Record that UpdateRaftVoter need not be sent: the leader has this node's endpoints or does not support it."""
        self.has_updated_leader = True


@dataclass(slots=True)
class ResignedState:
    """Resigned: former leader of this epoch, which sends EndQuorumEpoch to the other voters.

    ``deadline_ms``: monotonic time at which it becomes unattached in the next epoch. ``acknowledged_voters``: ids of
    voters that have responded.
    """

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
"""States that may follow each state.

Within its epoch a leader can only become Resigned; with a higher epoch every state can become Unattached or Follower.
"""

PERSISTED_STATES = frozenset({UnattachedState, CandidateState, RaftLeaderState, RaftFollowerState})
"""States that are written to quorum-state on entry; the others have no new durable state."""


def leader_id_of(state: EpochState, me: int) -> int:
    """Return the id of the leader in ``state``, the state of node ``me``; -1 if the state knows none."""
    match state:
        case RaftLeaderState():
            return me
        case RaftFollowerState(leader_id):
            return leader_id
        case _:
            return NO_NODE_ID
