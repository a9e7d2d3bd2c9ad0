"""The states of a raft node: what each knows besides the log, and from which one may become which.

Source: ``QuorumState.java`` and the ``EpochState`` classes (apache/kafka 4.3.1; KIP-595, KIP-996).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ottla.controller.raft.events import NOBODY, AddVoter, AskVersions, RemoveVoter, ReplicaKey
from ottla.wire.messages.control_records import VotersRecordVoter

FOREVER_MS = float("inf")


@dataclass(slots=True)
class Election:
    """Who has answered so far (R206)."""

    answers: dict[int, bool] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    """Who could not be asked."""

    def ask_again(self, voter: int, asked: dict[int, float]) -> None:
        """Who refused, now asks itself and cannot win has lost the leader as well by now: it may answer otherwise."""
        if self.answers.get(voter) is False:
            del self.answers[voter]
            asked.pop(voter, None)

    def won(self, majority: int) -> bool:
        """Whether enough said yes."""
        return sum(self.answers.values()) >= majority

    def lost(self, voters_count: int, majority: int) -> bool:
        """Whether enough said no that the rest cannot make a majority."""
        refused = sum(1 for granted in self.answers.values() if not granted)
        return voters_count - refused < majority


@dataclass(slots=True)
class Unattached:
    """Knows of no leader it could follow; a vote may have been given in this epoch."""

    deadline_ms: float


@dataclass(slots=True)
class Prospective:
    """Asks whether an election would be won, before it disturbs anybody with a new epoch (KIP-996)."""

    deadline_ms: float
    election: Election = field(default_factory=Election)


@dataclass(slots=True)
class Candidate:
    """Asks for votes in a new epoch."""

    deadline_ms: float
    election: Election = field(default_factory=Election)


@dataclass(slots=True)
class Progress:
    """How far a replica's log reaches, as the leader knows."""

    end: int = -1
    fetched_ms: float = -1
    caught_up_ms: float = -1
    leader_end: int = -1
    """Where the leader's log ended at the last fetch."""


@dataclass(slots=True)
class Change:
    """A change of the voters that is not finished: there is one at a time (R246)."""

    ticket: Any
    """None once it is answered."""
    request: AddVoter | RemoveVoter
    until_ms: float
    versions: AskVersions | None = None
    """What the new voter is being asked, until it has answered."""
    offset: int = -1
    """Where the Voters record stands that makes the change, once it does."""


@dataclass(slots=True)
class Leader:
    """Appends; commits what a majority has."""

    epoch_start: int
    deadline_ms: float
    """When it resigns, unless a majority fetches before (check quorum)."""
    granted: tuple[int, ...] = ()
    ends: dict[ReplicaKey, Progress] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    """Voters that fetched since the deadline was last moved."""
    change: Change | None = None
    told: dict[int, VotersRecordVoter] = field(default_factory=dict)
    """kraft.version 0: what the voters said of themselves; it takes all of them to raise the version (R244)."""


@dataclass(slots=True)
class Follower:
    """Fetches from a leader."""

    leader_id: int
    deadline_ms: float
    fetched: bool = False
    """Whether a fetch from this leader has succeeded: then it lives, and its rivals get no pre-vote (R212)."""
    is_its_turn: bool = False
    """Whether it is not to wait for others once its time is over."""
    offer_ms: float = FOREVER_MS
    """When it may tell the leader again where it listens, or ask to become a voter (R249, R250)."""
    told_leader: bool = False
    """kraft.version 0: the leader knows where this node listens."""


@dataclass(slots=True)
class Resigned:
    """Was the leader of this epoch and tells the others that it is not any more."""

    deadline_ms: float
    successors: tuple[ReplicaKey, ...] = ()
    told: set[int] = field(default_factory=set)


State = Unattached | Prospective | Candidate | Leader | Follower | Resigned

LEGAL: dict[type, frozenset[type]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Prospective, Candidate, Follower, Unattached}),
    Candidate: frozenset({Leader, Prospective, Follower, Unattached}),
    Leader: frozenset({Resigned, Unattached, Follower}),
    Follower: frozenset({Prospective, Follower, Unattached}),
    Resigned: frozenset({Unattached, Follower}),
}
"""Within its epoch a leader only ever becomes Resigned; a higher epoch makes anybody Unattached or Follower."""

DURABLE = frozenset({Unattached, Candidate, Leader, Follower})
"""States whose beginning is written to quorum-state (the others say nothing new that must survive)."""


def leader_of(state: State, me: int) -> int:
    """Who leads, as this state knows; -1 for nobody."""
    match state:
        case Leader():
            return me
        case Follower(leader_id):
            return leader_id
        case _:
            return NOBODY
