"""Recovery of a static voter whose disk was lost: it may have voted before, and must not vote again too early.

With static voters (kraft.version 0) a replica is identified by its id alone, so that an emptied disk is not noticed.
Such a voter has lost its votes and its copies of committed records; its vote could elect a leader without committed
records, or two leaders in one epoch. So a voter with an *empty log* votes only for an empty log: in a new quorum all
voters start like this, and the first vote ends the state. Once another node shows that a quorum existed, the voter is
*recovering*: it neither votes nor becomes a candidate before it has fetched the whole log from a leader.

Its fetches do not count for the high watermark either, until that leader is known to be no older than any leader it may
have voted for: once every other voter has responded since the start, since each response raises the epoch; or after a
time without votes which is longer than an election and a leader's check quorum timeout. Until then it fetches as an
observer.

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
"""Maximum ratio between the clock rates of two nodes."""


def can_grant_vote_before_recovery(raft: RaftState, vote: Vote) -> bool:
    """Return True if this voter, whose disk was empty at start, may grant ``vote``: only while it is EMPTY_LOG.

    A candidate with a non-empty log proves an existing quorum: return False then; the voter becomes RECOVERING.
    """
    if (vote.last_epoch, vote.end_offset) != (0, 0):
        start_recovery(raft)
    return raft.hard_state.voter_state == VoterState.EMPTY_LOG


def start_recovery(raft: RaftState) -> None:
    """Change the voter state from EMPTY_LOG to RECOVERING, and give up an election; no effect in another voter state.

    The voter then waits for a leader, and only queries the other voters' epochs.
    """
    if raft.hard_state.voter_state != VoterState.EMPTY_LOG:
        return
    raft.set_voter_state(VoterState.RECOVERING)
    if isinstance(raft.state, UnattachedState | ProspectiveState | CandidateState):
        raft.transition_to(UnattachedState(raft.leader_search_deadline_ms), raft.hard_state)


def have_all_voters_responded(raft: RaftState, prospective: ProspectiveState) -> bool:
    """Return True if every other voter has responded to the pre-vote or could not be connected to.

    Before that, a voter whose log has records may still be among the others.
    """
    election = prospective.election
    return all(v.id in election.votes or v.id in election.unreachable_voters for v in raft.voters.current)


def fetch_replica_key(raft: RaftState) -> ReplicaKey:
    """Return the replica key that fetches carry: this node's, or one without node id (-1), as of an observer.

    The latter while the fetches of a voter that is not NORMAL must not count for the high watermark (see the module).
    """
    if raft.hard_state.voter_state == VoterState.NORMAL:
        return raft.local_replica
    timeouts = raft.timeouts
    silent_ms = 2 * (timeouts.election_ms + timeouts.check_quorum_ms) * CLOCK_DRIFT_FACTOR
    others = {v.id for v in raft.voters.current if v.id != raft.local_replica.id}
    may = others <= raft.responded_voters or raft.now_ms >= raft.started_ms + silent_ms
    return raft.local_replica if may else ReplicaKey(NO_NODE_ID)


def epoch_query(raft: RaftState, peer: int) -> Vote | None:
    """Return the pre-vote by which a RECOVERING voter queries another voter's epoch; the response has the epoch.

    None if the epoch is known already (the peer has responded, or is the leader) or the voter is not RECOVERING.
    """
    led = isinstance(raft.state, RaftFollowerState) and raft.state.leader_id == peer
    if raft.hard_state.voter_state != VoterState.RECOVERING or led or peer in raft.responded_voters:
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
    """Record that voter ``peer`` has responded since the start; return the response.

    As Follower and Unattached, also clear the backoff of ``peer``. A response may have this node as the leader it was
    before the disk was lost: then a quorum existed (recovery starts), and the returned response has the leader id -1.
    """
    raft.responded_voters.add(peer)
    if isinstance(raft.state, RaftFollowerState | UnattachedState):
        raft.requests.clear_backoff(peer)
    if answer.leader_id != raft.local_replica.id:
        return answer
    start_recovery(raft)
    return answer._replace(leader_id=NO_NODE_ID)


def maybe_complete_recovery(raft: RaftState, request: Fetch, answer: RaftFetchResponse, *, nothing_new: bool) -> None:
    """Set the voter state to NORMAL if the response to a fetch shows that this voter has the leader's whole log.

    That is a response without records to a fetch with this voter's own key. ``nothing_new``: it has no batches.
    """
    if request.replica == raft.local_replica and nothing_new and answer.offset < 0:
        raft.set_voter_state(VoterState.NORMAL)


def report_state_change(raft: RaftState, before: VoterState) -> None:
    """Set the message to log after a change of the voter state from ``before``.

    A RECOVERING voter also starts to search for a leader, for `LEADER_SEARCH_TIMEOUT_MS` before it logs that there is
    none.
    """
    if raft.hard_state.voter_state == VoterState.RECOVERING:
        raft.set_leader_search_deadline(raft.now_ms + LEADER_SEARCH_TIMEOUT_MS)
        text = "this voter's metadata log is new, the quorum is not: it does not vote before a leader has filled it"
        raft.ready.report(logging.INFO, text)
    elif before == VoterState.RECOVERING:
        raft.ready.report(logging.INFO, "The voter has caught up with the leader and votes again")


def report_missing_leader(raft: RaftState) -> None:
    """Set the message to log, once, that a RECOVERING voter finds no leader; a majority of these can elect none.

    No other node logs it; the leader search deadline is cleared in any case.
    """
    raft.set_leader_search_deadline(NO_DEADLINE_MS)
    if raft.hard_state.voter_state == VoterState.RECOVERING and isinstance(raft.state, UnattachedState):
        text = (
            "this voter's metadata log is new and no leader is found that could fill it. Where most voters lost their "
            "disks none is elected: start one that has its data with controller.quorum.voters naming it alone "
            "(see ottla cluster recover)"
        )
        raft.ready.report(logging.WARNING, text)
