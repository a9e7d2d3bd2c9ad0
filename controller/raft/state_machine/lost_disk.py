"""A voter whose metadata log was made anew, where the settings name others that vote too: it may have voted before.

While voters are fixed by configuration (kraft.version 0) a replica is known by its id alone, and nobody sees that a
disk was emptied. What such a voter said to former leaders and candidates it has forgotten; its vote could elect a
leader without what was committed by it, or two in one epoch. So a *newborn* voter votes only for an empty log: in a
quorum that never was, all begin like that, and the first vote ends it. Where anybody shows it that there was a quorum,
it is *learning*: it neither votes nor stands before a leader has given it everything there is.

Nor does what it fetches count before that leader is known to be no older than what it may have voted for: once every
other voter has answered since it began, for each answer raises the epoch to its own; or once it was silent for longer
than a candidate waits for votes and a leader goes on without a majority. Until then it fetches as nobody.

Kafka has no such protection. A node alone, and one that needs none of this, does not load it.
"""

from __future__ import annotations

import logging

from ottla.controller.raft.state_machine.epoch_states import (
    NO_DEADLINE_MS,
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    Fetch,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RaftResponse,
    ReplicaKey,
    Vote,
    VoterChangeResponse,
    VoterState,
)
from ottla.controller.raft.state_machine.raft_state import LEADER_SEARCH_TIMEOUT_MS, RaftState

LeaderResponse = RaftResponse | RaftFetchResponse | RaftFetchSnapshotResponse | VoterChangeResponse

CLOCK_DRIFT_FACTOR = 1.1
"""How much faster this clock may go than the others'."""


def can_grant_vote_before_recovery(raft: RaftState, vote: Vote) -> bool:
    """Whether a voter that is not grown may vote so; a log that is not empty tells it that there was a quorum."""
    if (vote.last_epoch, vote.end_offset) != (0, 0):
        start_recovery(raft)
    return raft.hard_state.voter_state == VoterState.NEWBORN


def start_recovery(raft: RaftState) -> None:
    """There was a quorum before: wait for its leader, and ask the others only how far they are."""
    if raft.hard_state.voter_state != VoterState.NEWBORN:
        return
    raft.set_voter_state(VoterState.LEARNING)
    if isinstance(raft.state, UnattachedState | ProspectiveState | CandidateState):
        raft.transition_to(UnattachedState(raft.leader_search_deadline_ms), raft.hard_state)


def have_all_voters_responded(raft: RaftState, prospective: ProspectiveState) -> bool:
    """Whether every other voter said whether it would vote, or cannot be asked: one that has a log might be left."""
    election = prospective.election
    return all(v.id in election.votes or v.id in election.unreachable_voters for v in raft.voters.current)


def fetch_replica_key(raft: RaftState) -> ReplicaKey:
    """A grown voter itself, and another one once what it fetches may count; nobody before."""
    if raft.hard_state.voter_state == VoterState.GROWN:
        return raft.local_replica
    timeouts = raft.timeouts
    silent_ms = 2 * (timeouts.election_ms + timeouts.check_quorum_ms) * CLOCK_DRIFT_FACTOR
    others = {v.id for v in raft.voters.current if v.id != raft.local_replica.id}
    may = others <= raft.responded_voters or raft.now_ms >= raft.started_ms + silent_ms
    return raft.local_replica if may else ReplicaKey(NO_NODE_ID)


def epoch_query(raft: RaftState, peer: int) -> Vote | None:
    """What a learning voter asks one it has not heard of: would you have me? A refusal names its epoch.

    The leader it follows tells that with what is fetched.
    """
    led = isinstance(raft.state, RaftFollowerState) and raft.state.leader_id == peer
    if raft.hard_state.voter_state != VoterState.LEARNING or led or peer in raft.responded_voters:
        return None
    return Vote(
        raft.local_replica,
        raft.epoch,
        raft.log_summary.last_epoch,
        raft.log_summary.end_offset,
        True,
        raft.voters.find_voter(peer),
    )


def record_response(raft: RaftState, peer: int, answer: LeaderResponse) -> LeaderResponse:
    """A voter answered something this node asked in this life: with what it is given, its epoch is known.

    It may name this node, which it does not know by its question, as the leader it was.
    """
    raft.responded_voters.add(peer)
    if isinstance(raft.state, RaftFollowerState | UnattachedState):
        raft.requests.clear_backoff(peer)
    if answer.leader_id != raft.local_replica.id:
        return answer
    start_recovery(raft)
    return answer._replace(leader_id=NO_NODE_ID)


def maybe_complete_recovery(raft: RaftState, request: Fetch, answer: RaftFetchResponse, *, nothing_new: bool) -> None:
    """All that the leader had when it was asked lies on the disk here: this voter is as good as any other again."""
    if request.replica == raft.local_replica and nothing_new and answer.offset < 0:
        raft.set_voter_state(VoterState.GROWN)


def report_state_change(raft: RaftState, before: VoterState) -> None:
    """What a change of the age means, for the log; who learns looks for a leader from now on."""
    if raft.hard_state.voter_state == VoterState.LEARNING:
        raft.set_leader_search_deadline(raft.now_ms + LEADER_SEARCH_TIMEOUT_MS)
        text = "this voter's metadata log is new, the quorum is not: it does not vote before a leader has filled it"
        raft.ready.report(logging.INFO, text)
    elif before == VoterState.LEARNING:
        raft.ready.report(logging.INFO, "The voter has caught up with the leader and votes again")


def report_missing_leader(raft: RaftState) -> None:
    """No leader is found: where most voters are like this one nobody can be elected any more. It is said once."""
    raft.set_leader_search_deadline(NO_DEADLINE_MS)
    if raft.hard_state.voter_state == VoterState.LEARNING and isinstance(raft.state, UnattachedState):
        text = (
            "this voter's metadata log is new and no leader is found that could fill it. Where most voters lost their "
            "disks none is elected: start one that has its data with controller.quorum.voters naming it alone "
            "(see ottla cluster recover)"
        )
        raft.ready.report(logging.WARNING, text)
