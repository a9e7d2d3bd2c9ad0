"""Voter with a new metadata log among static voters, which may have voted before the loss of its disk.

With static voters (kraft.version 0) a replica is identified by its id alone, so that an emptied disk is not noticed.
Such a voter has lost its promises to former leaders and candidates; its vote could elect a leader without committed
records, or two leaders in one epoch. So a *newborn* voter votes only for an empty log: in a new quorum all voters start
like this, and the first vote ends the state. Once another node shows that a quorum existed, the voter is *learning*: it
neither votes nor becomes a candidate before a leader has sent it the whole log.

Its fetches do not count either, until that leader is known to be no older than any leader it may have voted for: once
every other voter has responded since the start, since each response raises the epoch; or once it was silent for longer
than a candidate waits for votes and a leader continues without a majority. Until then it fetches as an observer.

Kafka has no such protection. A single node, and one that does not need the protection, does not load this module.
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
"""Maximum ratio of this clock's speed to the others'."""


def can_grant_vote_before_recovery(raft: RaftState, vote: Vote) -> bool:
    """Return True if a voter that is not grown may grant this vote.

    A log that is not empty proves an existing quorum.
    """
    if (vote.last_epoch, vote.end_offset) != (0, 0):
        start_recovery(raft)
    return raft.hard_state.voter_state == VoterState.NEWBORN


def start_recovery(raft: RaftState) -> None:
    """Start learning in an existing quorum: wait for its leader, and query the others' epochs only."""
    if raft.hard_state.voter_state != VoterState.NEWBORN:
        return
    raft.set_voter_state(VoterState.LEARNING)
    if isinstance(raft.state, UnattachedState | ProspectiveState | CandidateState):
        raft.transition_to(UnattachedState(raft.leader_search_deadline_ms), raft.hard_state)


def have_all_voters_responded(raft: RaftState, prospective: ProspectiveState) -> bool:
    """Return True if every other voter responded to the pre-vote or is unreachable: one with a log may remain."""
    election = prospective.election
    return all(v.id in election.votes or v.id in election.unreachable_voters for v in raft.voters.current)


def fetch_replica_key(raft: RaftState) -> ReplicaKey:
    """Return the replica key of a grown voter, or of another one once its fetches count; no key before."""
    if raft.hard_state.voter_state == VoterState.GROWN:
        return raft.local_replica
    timeouts = raft.timeouts
    silent_ms = 2 * (timeouts.election_ms + timeouts.check_quorum_ms) * CLOCK_DRIFT_FACTOR
    others = {v.id for v in raft.voters.current if v.id != raft.local_replica.id}
    may = others <= raft.responded_voters or raft.now_ms >= raft.started_ms + silent_ms
    return raft.local_replica if may else ReplicaKey(NO_NODE_ID)


def epoch_query(raft: RaftState, peer: int) -> Vote | None:
    """Return the pre-vote with which a learning voter queries another's epoch. The rejection has the epoch.

    The leader's epoch is in the fetch responses.
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
    """Record a voter's response to a request of this process, which shows its epoch.

    It may name this node as the former leader, since the request does not identify it.
    """
    raft.responded_voters.add(peer)
    if isinstance(raft.state, RaftFollowerState | UnattachedState):
        raft.requests.clear_backoff(peer)
    if answer.leader_id != raft.local_replica.id:
        return answer
    start_recovery(raft)
    return answer._replace(leader_id=NO_NODE_ID)


def maybe_complete_recovery(raft: RaftState, request: Fetch, answer: RaftFetchResponse, *, nothing_new: bool) -> None:
    """Complete recovery once the leader's log at the time of the request is on disk: the voter is grown again."""
    if request.replica == raft.local_replica and nothing_new and answer.offset < 0:
        raft.set_voter_state(VoterState.GROWN)


def report_state_change(raft: RaftState, before: VoterState) -> None:
    """Log a change of the voter state; a learning voter starts to search for a leader."""
    if raft.hard_state.voter_state == VoterState.LEARNING:
        raft.set_leader_search_deadline(raft.now_ms + LEADER_SEARCH_TIMEOUT_MS)
        text = "this voter's metadata log is new, the quorum is not: it does not vote before a leader has filled it"
        raft.ready.report(logging.INFO, text)
    elif before == VoterState.LEARNING:
        raft.ready.report(logging.INFO, "The voter has caught up with the leader and votes again")


def report_missing_leader(raft: RaftState) -> None:
    """Log once that no leader is found: with a majority of such voters no leader can be elected."""
    raft.set_leader_search_deadline(NO_DEADLINE_MS)
    if raft.hard_state.voter_state == VoterState.LEARNING and isinstance(raft.state, UnattachedState):
        text = (
            "this voter's metadata log is new and no leader is found that could fill it. Where most voters lost their "
            "disks none is elected: start one that has its data with controller.quorum.voters naming it alone "
            "(see ottla cluster recover)"
        )
        raft.ready.report(logging.WARNING, text)
