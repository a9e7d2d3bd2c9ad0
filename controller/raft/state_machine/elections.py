"""Elections of the controller quorum: pre-votes, votes, and the transitions to leader and from leader.

Functions change the given `RaftState`; only `send_pending_requests`, at the end of each step, adds requests to `Ready`.

Source: the ``poll...`` methods of ``KafkaRaftClient.java``, ``QuorumState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft.state_machine.epoch_states import (
    NO_DEADLINE_MS,
    CandidateState,
    EpochElection,
    EpochState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ReplicaProgress,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    BeginEpoch,
    EndEpoch,
    HardState,
    OutboundRequest,
    RaftRequest,
    Vote,
    VoterState,
)
from ottla.controller.raft.state_machine.leader import preferred_successors
from ottla.controller.raft.state_machine.log_summary import voter_keys
from ottla.controller.raft.state_machine.raft_state import LEADER_SEARCH_TIMEOUT_MS, RaftState
from ottla.wire.messages.control_records import LeaderChangeMessage, LeaderChangeMessageVoter, VotersRecord

ELECTION_STAGGER_MS = 150
"""Maximum delay in ms over which followers stagger their elections after the loss of a leader."""


def initialize(raft: RaftState) -> None:
    """Enter the first state after the start, from the persisted quorum-state (R-204).

    Leadership is never restored, and a sole voter elects itself at once (R-205). A node that voted for itself and then
    followed another leader in the same epoch follows it again. Kafka's node requests votes then, with a log that
    reaches into the candidate's epoch, and stops after the error response (R-254).
    """
    hard = raft.hard_state
    if hard.voter_state != VoterState.NORMAL:
        raft.set_leader_search_deadline(raft.now_ms + LEADER_SEARCH_TIMEOUT_MS)
    if hard.epoch < raft.log_summary.last_epoch:
        hard = HardState(raft.log_summary.last_epoch, voter_state=hard.voter_state)
    raft.initialize(_initial_state(raft, hard, raft.random_election_deadline_ms()), hard)
    if isinstance(raft.state, CandidateState):
        evaluate_votes(raft)
    elif _is_sole_voter(raft):
        transition_to_prospective(raft)


def _initial_state(raft: RaftState, hard: HardState, election_ms: float) -> EpochState:
    me, voted = raft.local_replica, hard.voted_key
    if hard.leader_id == NO_NODE_ID and voted is not None and voted.identifies(me) and raft.can_be_candidate:
        return CandidateState(election_ms, EpochElection(raft.own_vote))
    if _is_sole_voter(raft):
        return UnattachedState(election_ms)
    if hard.leader_id == me.id:
        return ResignedState(election_ms)
    if hard.leader_id >= 0 and raft.can_reach(hard.leader_id):
        later = raft.now_ms + raft.timeouts.fetch_ms
        return RaftFollowerState(hard.leader_id, later, voter_request_due_ms=later)
    if not raft.can_be_candidate:
        return UnattachedState(raft.leader_search_deadline_ms)
    is_new = hard.epoch == 0 and raft.log_summary.end_offset == 0  # there never was a leader to wait for
    return UnattachedState(raft.now_ms + election_delay_ms(raft) if is_new else election_ms)


def _is_sole_voter(raft: RaftState) -> bool:
    return raft.can_be_candidate and [v.id for v in raft.voters.current] == [raft.local_replica.id]


def tick(raft: RaftState) -> None:
    """Process the passing of time (``raft.now_ms``): expire delayed fetches and the fetch in flight, then the state.

    An expired follower starts a pre-vote (perhaps after its election delay), an unattached voter at once. An observer
    keeps fetching; a RECOVERING voter also logs once that no leader is found. A pre-vote counts as lost unless a
    majority has granted it, a candidate starts a new pre-vote, a leader resigns, and a resigned node becomes
    unattached in the next epoch. Before a state's deadline it stays as it is.
    """
    raft.expire_delayed_fetches()
    if raft.requests.is_fetching and raft.now_ms >= raft.requests.fetch_deadline_ms:
        # lazy: 1.1 ms, 39 kB: only in a quorum of several controllers
        from ottla.controller.raft.state_machine import follower_fetch

        follower_fetch.handle_fetch_failure(raft, raft.requests.fetch_peer)
    state = raft.state
    if raft.now_ms < state.deadline_ms:
        return
    match state:
        case RaftFollowerState() if raft.can_be_candidate:
            handle_fetch_timeout(raft, state)
        case UnattachedState() if raft.can_be_candidate:
            transition_to_prospective(raft)
        case RaftFollowerState() | UnattachedState():
            if raft.now_ms >= raft.leader_search_deadline_ms:
                # lazy: 0.6 ms, 16 kB
                from ottla.controller.raft.state_machine import lost_disk

                lost_disk.report_missing_leader(raft)
            raft.restart_fetching()  # an observer keeps fetching
        case ProspectiveState(election=election) if election.is_vote_granted(raft.voters.majority_size):
            transition_to_candidate(raft)  # a voter with an empty disk has waited long enough for the other voters
        case ProspectiveState():
            transition_after_lost_pre_vote(raft)
        case CandidateState():
            transition_to_prospective(raft)
        case RaftLeaderState():
            transition_to_resigned(raft)  # no majority has fetched within the check quorum timeout
        case ResignedState():
            votes = raft.can_be_candidate
            raft.transition_to(UnattachedState(raft.now_ms if votes else NO_DEADLINE_MS), HardState(raft.epoch + 1))
            if votes:
                transition_to_prospective(raft)


def election_delay_ms(raft: RaftState, lost: int = NO_NODE_ID) -> float:
    """Return this voter's delay in ms before it requests votes: a share of `ELECTION_STAGGER_MS` by its position.

    The position is that of its id among the sorted voters without ``lost`` (the former leader); 0 ms for no voter.
    """
    others = sorted(v.id for v in raft.voters.current if v.id != lost)
    return (
        ELECTION_STAGGER_MS * others.index(raft.local_replica.id) / len(others)
        if raft.local_replica.id in others
        else 0
    )


def handle_fetch_timeout(raft: RaftState, follower: RaftFollowerState) -> None:
    """Start a pre-vote when the fetch timeout of a voter has passed: at once, or after this voter's election delay.

    All followers lose a leader at the same moment. In Kafka they also request votes at the same moment, each gets the
    pre-votes and votes for itself, and an even number of them has no winner for one or two seconds. Here they start in
    the order of their ids, a few milliseconds apart, and grant pre-votes while they wait.
    """
    wait_ms = 0 if follower.skips_election_delay else election_delay_ms(raft, follower.leader_id)
    if wait_ms == 0:
        transition_to_prospective(raft)
        return
    follower.override_fetch_timeout(raft.now_ms + wait_ms, leader_lost=True)


def handle_leader_refused(raft: RaftState, peer: int) -> None:
    """Start the pre-vote (or its delay) if ``peer`` is the leader, whose port refused a connection of this node.

    Kafka waits for the fetch timeout. This is safe even if the leader is alive: the pre-vote is lost, and it continues.
    No effect unless this node is a voter that follows ``peer`` and is not about to start an election.
    """
    state = raft.state
    if (
        isinstance(state, RaftFollowerState)
        and state.leader_id == peer
        and raft.can_be_candidate
        and not state.skips_election_delay
    ):
        raft.set_refused_leader(peer)
        handle_fetch_timeout(raft, state)


def transition_to_prospective(raft: RaftState) -> None:
    """Become Prospective, to request pre-votes in this epoch (sent later); a sole voter goes on to Candidate."""
    raft.transition_to(ProspectiveState(raft.random_election_deadline_ms(), EpochElection(raft.own_vote)))
    evaluate_votes(raft)


def transition_after_lost_pre_vote(raft: RaftState) -> None:
    """Leave Prospective after a lost pre-vote: follow the former leader again, with a new fetch timeout (R-208).

    Without a former leader (or if its port refused connections), a rejected node waits for a new election timeout, and
    a node whose election timeout passed without a result requests pre-votes again at once (R-203).
    """
    assert isinstance(raft.state, ProspectiveState)
    known = raft.hard_state.leader_id
    if known >= 0 and known not in (raft.local_replica.id, raft.refused_leader_id) and raft.can_reach(known):
        raft.transition_to_follower(raft.epoch, known)
    elif raft.state.election.is_vote_rejected(len(raft.voters.current), raft.voters.majority_size):
        raft.transition_to(UnattachedState(raft.random_election_deadline_ms()), raft.hard_state)
    else:
        raft.transition_to(UnattachedState(raft.now_ms), raft.hard_state)
        transition_to_prospective(raft)


def transition_to_candidate(raft: RaftState) -> None:
    """Become Candidate: increment the epoch, vote for itself; a sole voter becomes leader at once.

    The requests for votes are sent later.
    """
    chosen = CandidateState(raft.random_election_deadline_ms(), EpochElection(raft.own_vote))
    raft.transition_to(chosen, HardState(raft.epoch + 1, NO_NODE_ID, raft.local_replica))
    evaluate_votes(raft)


def evaluate_votes(raft: RaftState) -> None:
    """Transition to the next state if the votes so far decide the pre-vote or election; otherwise wait.

    A won pre-vote leads to Candidate (of a voter that is not NORMAL only once all voters have responded or are
    unreachable), a lost one to `transition_after_lost_pre_vote`. A won election leads to Leader; a lost one waits for
    its timeout.
    """
    state, majority = raft.state, raft.voters.majority_size
    match state:
        case ProspectiveState(election=election) if election.is_vote_granted(majority):
            if raft.hard_state.voter_state == VoterState.NORMAL or _have_all_responded(raft, state):
                transition_to_candidate(raft)
        case ProspectiveState(election=election) if election.is_vote_rejected(len(raft.voters.current), majority):
            transition_after_lost_pre_vote(raft)
        case CandidateState(election=election) if election.is_vote_granted(majority):
            transition_to_leader(raft, tuple(i for i, granted in election.votes.items() if granted))
        case _:
            pass  # a rejected candidate stays until its election timeout


def _have_all_responded(raft: RaftState, state: ProspectiveState) -> bool:
    # lazy: 0.6 ms, 16 kB
    from ottla.controller.raft.state_machine import lost_disk

    return lost_disk.have_all_voters_responded(raft, state)


def transition_to_leader(raft: RaftState, granted: tuple[int, ...]) -> None:
    """Become leader of the epoch: append a LeaderChangeMessage as first record of the epoch (R-229).

    ``granted``: ids of the voters that granted their vote, which it lists. The records of `RaftState.set_first_records`
    (kraft.version and voters that the log lacks), if any, follow it in the same batch.
    """
    entry = raft.voter_entry
    state = RaftLeaderState(
        raft.log_summary.end_offset,
        NO_DEADLINE_MS if len(raft.voters.current) == 1 else raft.now_ms + raft.timeouts.check_quorum_ms,
        granted,
        {v: ReplicaProgress() for v in raft.voters.current},
        voter_updates={} if entry is None or raft.voters.kraft_version >= 1 else {entry.voter_id: entry},
    )
    raft.transition_to(state, HardState(raft.epoch, raft.local_replica.id))
    voters = [LeaderChangeMessageVoter(v.id) for v in raft.voters.current]
    yes = [v for v in voters if v.voter_id in granted]
    controls = (LeaderChangeMessage(0, raft.local_replica.id, voters, yes), *raft.first_records)
    first = raft.append(len(controls), controls=controls)
    if raft.first_records:
        record = raft.first_records[-1]
        assert isinstance(record, VotersRecord)
        raft.voters.add(first + len(controls) - 1, voter_keys(record), record)
        raft.set_first_records(())


def transition_to_resigned(raft: RaftState) -> None:
    """Resign the leadership; no effect if this node is not the leader.

    Nothing is sent here: in the new state `request_for_voter` returns EndQuorumEpoch for each other voter, with the
    preferred successors in descending order of their end offsets (R-210, R-215).
    """
    if isinstance(raft.state, RaftLeaderState):
        raft.transition_to(
            ResignedState(
                raft.random_election_deadline_ms(), preferred_successors(raft.state, raft.local_replica, raft.voters)
            )
        )


def request_for_voter(raft: RaftState, peer: int) -> RaftRequest | None:
    """Return the Raft request that the current state has to send to voter ``peer`` now, or None if there is none.

    Vote, EndQuorumEpoch, or the epoch query of a voter with a lost disk, until the voter has responded;
    BeginQuorumEpoch while the voter has not fetched for half of the fetch timeout. Nothing is sent or changed here.
    """
    state, me, chain = raft.state, raft.local_replica, raft.log_summary
    key = raft.voters.find_voter(peer)
    match state:
        case ProspectiveState(election=election) | CandidateState(election=election):
            if peer in election.votes or election.is_vote_rejected(len(raft.voters.current), raft.voters.majority_size):
                return None
            pre = isinstance(state, ProspectiveState)
            return Vote(me, raft.epoch, chain.last_epoch, chain.end_offset, pre, key)
        case RaftLeaderState():
            assert key is not None
            fetched_ms = state.replicas.get(key, ReplicaProgress()).last_fetch_ms
            silent = fetched_ms < 0 or raft.now_ms - fetched_ms >= raft.timeouts.fetch_ms / 2
            return BeginEpoch(me.id, raft.epoch, key) if silent else None
        case ResignedState() if peer not in state.acknowledged_voters:
            return EndEpoch(me.id, raft.epoch, state.preferred_successors)
        case RaftFollowerState() | UnattachedState() if raft.hard_state.voter_state == VoterState.RECOVERING:
            # lazy: 0.6 ms, 16 kB
            from ottla.controller.raft.state_machine import lost_disk

            return lost_disk.epoch_query(raft, peer)
        case _:
            return None


def send_pending_requests(raft: RaftState) -> None:
    """Add the current state's request to every other voter that has no request in flight and no backoff to `Ready`.

    A leader checks a voter that needs no BeginQuorumEpoch again after half of the fetch timeout.
    """
    if (
        not isinstance(raft.state, ProspectiveState | CandidateState | RaftLeaderState | ResignedState)
        and raft.hard_state.voter_state != VoterState.RECOVERING
    ):
        return
    for voter in raft.voters.current:
        if voter.id == raft.local_replica.id or not raft.requests.is_backoff_over(voter.id, raft.now_ms):
            continue
        request = request_for_voter(raft, voter.id)
        if request is not None:
            raft.requests.back_off(voter.id, NO_DEADLINE_MS)
            raft.ready.sends.append(OutboundRequest(voter.id, request))
        elif isinstance(raft.state, RaftLeaderState):
            raft.requests.back_off(voter.id, raft.now_ms + raft.timeouts.fetch_ms / 2)
