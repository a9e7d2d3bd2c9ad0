"""Handlers of Raft requests of other nodes, and of responses, rejections and failures of this node's own requests.

Source: the ``handle...Request`` and ``handle...Response`` methods of ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.state_machine import (
    elections,
    fetch_handlers,
    follower_fetch,
    lost_disk,
    voter_changes,
    voter_join,
)
from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ResignedState,
)
from ottla.controller.raft.state_machine.events import (
    AddVoter,
    AnyRaftResponse,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchedRaftBatch,
    FetchSnapshot,
    KRaftVersionsResponse,
    OutboundResponse,
    QueryKRaftVersions,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RaftRequest,
    RaftResponse,
    RemoveVoter,
    RequestFailed,
    RequestReceived,
    RequestRejected,
    ResponseReceived,
    UpdateVoter,
    Vote,
    VoterChangeResponse,
    VoterState,
)
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.controller.raft.state_machine.vote_rules import can_grant_vote, malformed_vote_error, sender_error
from ottla.wire.errors import ErrorCode


def handle_event(raft: RaftState, event: RequestReceived | ResponseReceived | RequestRejected | RequestFailed) -> None:
    """Process a request of another node (or `UpgradeKRaftVersion`), or the result of a request of this node."""
    match event:
        case RequestReceived(pending, request):
            handle_request(raft, pending, request)
        case ResponseReceived(peer, request, answer, batches):
            handle_response(raft, peer, request, answer, batches)
        case RequestRejected(peer, request, error):
            handle_rejection(raft, peer, request, error)
        case RequestFailed(peer, request):
            handle_failure(raft, peer, request)


def handle_request(raft: RaftState, pending: Any, request: RaftRequest) -> None:
    """Process a request of another node, or `UpgradeKRaftVersion`: change the state, add the response to `Ready`.

    A fetch or voter change may get its response in a later step. ``pending``: object of `RequestReceived` that the
    response names.
    """
    match request:
        case Vote():
            raft.ready.replies.append(OutboundResponse(pending, _handle_vote(raft, request)))
        case BeginEpoch():
            raft.ready.replies.append(OutboundResponse(pending, _handle_leader_epoch(raft, request)))
        case EndEpoch():
            raft.ready.replies.append(OutboundResponse(pending, _handle_end_epoch(raft, request)))
        case Fetch():
            fetch_handlers.handle_fetch(raft, pending, request)
        case FetchSnapshot():
            fetch_handlers.handle_fetch_snapshot(raft, pending, request)
        case QueryKRaftVersions():
            raise AssertionError("QueryKRaftVersions is answered outside the state machine")
        case _:
            voter_changes.handle_voter_request(raft, pending, request)


def _response(raft: RaftState, error: ErrorCode = ErrorCode.NONE) -> RaftResponse:
    return RaftResponse(error, raft.epoch, raft.leader_id)


def _handle_vote(raft: RaftState, vote: Vote) -> RaftResponse:
    """Process a Vote or pre-vote and return the response (R-211, R-212).

    A higher epoch is adopted first, also from a pre-vote; a granted vote (not a pre-vote) is persisted with this step.
    """
    error, granted = _evaluate_vote(raft, vote)
    return RaftResponse(error, raft.epoch, raft.leader_id_for(vote.candidate.id), granted)


def _evaluate_vote(raft: RaftState, vote: Vote) -> tuple[ErrorCode, bool]:
    wrong = malformed_vote_error(vote)
    if wrong == ErrorCode.NONE:
        wrong = sender_error(vote.candidate.id, vote.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return wrong, False
    if vote.epoch > raft.epoch:
        raft.transition_to_unattached(vote.epoch)
    if vote.voter is not None and not vote.voter.identifies(raft.local_replica):
        return ErrorCode.INVALID_VOTER_KEY, False
    up_to_date = can_grant_vote(
        raft.state, raft.hard_state, vote, raft.log_summary.last_epoch, raft.log_summary.end_offset
    )
    granted = up_to_date and vote.candidate.id != raft.local_replica.id  # node ids are unique
    if raft.hard_state.voter_state != VoterState.NORMAL:
        granted = lost_disk.can_grant_vote_before_recovery(raft, vote) and granted
    refused = vote.pre_vote and not granted
    if refused and isinstance(raft.state, ProspectiveState) and raft.state.election.clear_rejection(vote.candidate.id):
        raft.requests.clear_backoff(vote.candidate.id)
    if granted and not vote.pre_vote and raft.hard_state.voted_key is None:
        raft.add_voted_state(vote.candidate)
    return ErrorCode.NONE, granted


def _handle_leader_epoch(raft: RaftState, begin: BeginEpoch) -> RaftResponse:
    """Process BeginQuorumEpoch: follow the leader, if its epoch is not older; return the response (R-214).

    The error is INVALID_VOTER_KEY if the request is addressed to another voter key; the leader is followed all the
    same.
    """
    wrong = sender_error(begin.leader_id, begin.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return _response(raft, wrong)
    raft.maybe_transition(begin.epoch, begin.leader_id)
    if begin.voter is not None and not begin.voter.identifies(raft.local_replica):
        return _response(raft, ErrorCode.INVALID_VOTER_KEY)
    return _response(raft)


def _handle_end_epoch(raft: RaftState, end: EndEpoch) -> RaftResponse:
    """Process EndQuorumEpoch: set the time of this follower's pre-vote; return the response (R-215).

    The first preferred successor starts at once; each further one waits twice as long as the one before.
    """
    wrong = sender_error(end.leader_id, end.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return _response(raft, wrong)
    raft.maybe_transition(end.epoch, end.leader_id)
    if isinstance(raft.state, RaftFollowerState) and raft.state.leader_id == end.leader_id:
        is_me = [s.identifies(raft.local_replica) for s in end.preferred_successors]
        deadline_ms = raft.now_ms + successor_wait_ms(is_me, raft.timeouts.backoff_max_ms)
        raft.state.override_fetch_timeout(deadline_ms, leader_lost=False)
    return _response(raft)


def successor_wait_ms(is_me: list[bool], max_ms: float) -> float:
    """Return a follower's wait in ms before it requests votes, by its position in the preferred successors (R-215).

    ``is_me``: for each successor True if it is this node; ``max_ms``: wait of a node that is not among them. A
    restarted leader sends no successors: then no follower waits (0).
    """
    if is_me and True not in is_me:
        return max_ms
    position = is_me.index(True) if is_me else 0
    if position == 0:
        return 0
    base = int(max_ms) >> (len(is_me) - 1)
    return min(max_ms, base << (position - 1))


# ------------------------------------------------------------------ responses of other nodes


def handle_failure(raft: RaftState, peer: int, request: RaftRequest) -> None:
    """Process a request without a response, by its kind: schedule a retry after a backoff, or give it up.

    BeginQuorumEpoch is retried after half of the fetch timeout (R-214); a failed ApiVersions query fails its voter
    change. For a voter with an empty disk ``peer`` counts as unreachable in its pre-vote, which may decide it.
    """
    if request is raft.requests.pending_fetch or request is raft.requests.pending_voter_request:
        follower_fetch.handle_fetch_failure(raft, peer)
    elif isinstance(request, QueryKRaftVersions):
        voter_changes.handle_versions_response(raft, request, KRaftVersionsResponse(ErrorCode.BROKER_NOT_AVAILABLE))
    elif isinstance(request, Fetch | FetchSnapshot):
        pass  # the Fetch has timed out already; FetchSnapshot is retried by the driver
    elif peer in raft.requests.next_request_ms:
        wait_ms = raft.timeouts.fetch_ms / 2 if isinstance(request, BeginEpoch) else raft.timeouts.retry_ms
        raft.requests.back_off(peer, raft.now_ms + wait_ms)
        if isinstance(raft.state, ProspectiveState) and raft.hard_state.voter_state == VoterState.EMPTY_LOG:
            raft.state.election.unreachable_voters.add(peer)
            elections.evaluate_votes(raft)


def handle_rejection(raft: RaftState, peer: int, request: RaftRequest, error: ErrorCode) -> None:
    """Process an error for a whole request: as a failure, except for UNSUPPORTED_VERSION.

    With UNSUPPORTED_VERSION a pre-vote becomes a vote in a new epoch at once (R-207), and UpdateRaftVoter is not sent
    again to this leader.
    """
    is_pre_vote = isinstance(request, Vote) and request.pre_vote and request.epoch == raft.epoch
    if is_pre_vote and isinstance(raft.state, ProspectiveState) and error == ErrorCode.UNSUPPORTED_VERSION:
        elections.transition_to_candidate(raft)
    elif (
        request is raft.requests.pending_voter_request
        and error == ErrorCode.UNSUPPORTED_VERSION
        and isinstance(raft.state, RaftFollowerState)
    ):
        raft.requests.complete()
        raft.state.set_has_updated_leader()  # the leader does not support UpdateRaftVoter
    else:
        handle_failure(raft, peer, request)


def handle_response(
    raft: RaftState, peer: int, request: RaftRequest, answer: AnyRaftResponse, batches: tuple[FetchedRaftBatch, ...]
) -> None:
    """Process a response of ``peer``: adopt its epoch and leader (R-209), then its contents.

    Epoch and leader are not adopted with UNKNOWN_LEADER_EPOCH, nor from an ApiVersions response. ``batches``: those of
    a Fetch response.
    """
    if isinstance(request, QueryKRaftVersions):
        assert isinstance(answer, KRaftVersionsResponse)
        voter_changes.handle_versions_response(raft, request, answer)
        return
    assert not isinstance(answer, KRaftVersionsResponse)
    if raft.hard_state.voter_state != VoterState.NORMAL:
        answer = lost_disk.record_response(raft, peer, answer)
    before, requests = raft.state, raft.requests
    fetched, offered = request is requests.pending_fetch, request is requests.pending_voter_request
    if fetched or offered:
        requests.complete()
    if answer.error != ErrorCode.UNKNOWN_LEADER_EPOCH and (answer.epoch > raft.epoch or answer.leader_id >= 0):
        raft.maybe_transition(answer.epoch, answer.leader_id)
    match request, answer:
        case Fetch(), RaftFetchResponse():
            if answer.error == ErrorCode.UNKNOWN_SERVER_ERROR:  # the response of a leader with this node's id
                raft.report_duplicate_id(
                    answer.epoch, f"the leader of epoch {answer.epoch} rejects fetches of node {raft.local_replica.id}"
                )
            if fetched:
                follower_fetch.handle_fetch_response(raft, before, peer, request, answer, batches)
        case FetchSnapshot(), RaftFetchSnapshotResponse():
            follower_fetch.handle_fetch_snapshot_response(raft, request, answer)
        case AddVoter() | RemoveVoter() | UpdateVoter(), VoterChangeResponse():
            if offered and raft.state is before and not voter_join.handle_voter_response(raft, request, answer):
                follower_fetch.back_off(raft, peer)
        case Vote() | BeginEpoch() | EndEpoch(), RaftResponse():
            _handle_epoch_response(raft, peer, request, answer)
        case _:
            raise AssertionError(f"{answer} is not a response to {request}")


def _handle_epoch_response(
    raft: RaftState, peer: int, request: Vote | BeginEpoch | EndEpoch, answer: RaftResponse
) -> None:
    """Process a response to Vote, BeginQuorumEpoch or EndQuorumEpoch; one of an older epoch is ignored.

    Votes are counted and may decide the election. A vote response with an error counts as no response.
    """
    if request.epoch != raft.epoch or answer.epoch < raft.epoch:
        return
    state = raft.state
    match request, state:
        case Vote(), ProspectiveState() | CandidateState() if answer.error != ErrorCode.NONE:
            handle_failure(raft, peer, request)  # neither granted nor rejected
        case Vote(pre_vote=True), ProspectiveState(election=election):
            election.record_vote(peer, granted=answer.vote_granted)
            if not answer.vote_granted:
                # a node that rejects an empty log has records, or follows a leader with records
                lost_disk.start_recovery(raft)
            elections.evaluate_votes(raft)
        case Vote(pre_vote=False), CandidateState(election=election, deadline_ms=deadline_ms) if (
            peer not in election.votes
        ):
            if raft.now_ms < deadline_ms:  # after a pause an old vote may be of a voter that has lost its disk since
                election.record_vote(peer, granted=answer.vote_granted)
                elections.evaluate_votes(raft)
        case BeginEpoch(), RaftLeaderState():
            raft.requests.back_off(peer, raft.now_ms + raft.timeouts.fetch_ms / 2)
        case EndEpoch(), ResignedState(acknowledged_voters=acknowledged):
            acknowledged.add(peer)
        case _:
            pass
