"""What a raft node answers to others, and what it makes of their answers.

Source: the ``handle...Request`` and ``handle...Response`` methods of ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft import elections, following, joining, newborn, serving, voter_changes
from ottla.controller.raft.events import (
    AddVoter,
    Age,
    Answer,
    Answered,
    AnyAnswer,
    Asked,
    AskVersions,
    Batch,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    HardState,
    Refused,
    RemoveVoter,
    Reply,
    Request,
    SnapshotAnswer,
    Unreachable,
    UpdateVoter,
    VersionsAnswer,
    Vote,
    VoterAnswer,
)
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from ottla.controller.raft.votes import grants, sender_error, shape_error
from ottla.wire.errors import ErrorCode


def take(raft: RaftNode, event: Asked | Answered | Refused | Unreachable) -> None:
    """Another node said something, or did not answer."""
    match event:
        case Asked(ticket, request):
            to_request(raft, ticket, request)
        case Answered(peer, request, answer, batches):
            take_answer(raft, peer, request, answer, batches)
        case Refused(peer, request, error):
            refused(raft, peer, request, error)
        case Unreachable(peer, request):
            unreachable(raft, peer, request)


def to_request(raft: RaftNode, ticket: Any, request: Request) -> None:
    """Answer a request; a fetch or a change of the voters may have to wait for its answer."""
    match request:
        case Vote():
            raft.ready.replies.append(Reply(ticket, _vote(raft, request)))
        case BeginEpoch():
            raft.ready.replies.append(Reply(ticket, _begin(raft, request)))
        case EndEpoch():
            raft.ready.replies.append(Reply(ticket, _end(raft, request)))
        case Fetch():
            serving.fetch(raft, ticket, request)
        case FetchSnapshot():
            serving.snapshot(raft, ticket, request)
        case AskVersions():
            raise AssertionError("the machine is not asked what this node speaks")
        case _:
            voter_changes.to_request(raft, ticket, request)


def _answer(raft: RaftNode, error: ErrorCode = ErrorCode.NONE) -> Answer:
    return Answer(error, raft.epoch, raft.leader_id)


def _vote(raft: RaftNode, vote: Vote) -> Answer:
    """R211, R212. A higher epoch is taken over before anything is judged, of a pre-vote too (R59)."""
    error, granted = _judge(raft, vote)
    return Answer(error, raft.epoch, raft.leader_for(vote.candidate.id), granted)


def _judge(raft: RaftNode, vote: Vote) -> tuple[ErrorCode, bool]:
    wrong = shape_error(vote)
    if wrong == ErrorCode.NONE:
        wrong = sender_error(vote.candidate.id, vote.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return wrong, False
    if vote.epoch > raft.epoch:
        raft.to_unattached(vote.epoch)
    if vote.voter is not None and not vote.voter.names(raft.me):
        return ErrorCode.INVALID_VOTER_KEY, False
    up_to_date = grants(raft.state, raft.hard, vote, raft.chain.last_epoch, raft.chain.end)
    granted = up_to_date and vote.candidate.id != raft.me.id  # nobody else has this node's id
    if raft.hard.age != Age.GROWN:
        granted = newborn.grants(raft, vote) and granted
    if vote.pre and not granted and isinstance(raft.state, Prospective):
        raft.state.election.ask_again(vote.candidate.id, raft.asked)
    if granted and not vote.pre and raft.hard.voted is None:
        raft.hard = HardState(raft.epoch, raft.hard.leader_id, vote.candidate)
        assert isinstance(raft.state, Unattached | Prospective)
        raft.state.deadline_ms = raft.random_election_ms()
    return ErrorCode.NONE, granted


def _begin(raft: RaftNode, begin: BeginEpoch) -> Answer:
    """R214: the leader is followed first; only then the key is compared."""
    wrong = sender_error(begin.leader_id, begin.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return _answer(raft, wrong)
    raft.follow_news(begin.epoch, begin.leader_id)
    if begin.voter is not None and not begin.voter.names(raft.me):
        return _answer(raft, ErrorCode.INVALID_VOTER_KEY)
    return _answer(raft)


def _end(raft: RaftNode, end: EndEpoch) -> Answer:
    """R215: the first of the successors tries at once, the others later, each twice as early as the next."""
    wrong = sender_error(end.leader_id, end.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return _answer(raft, wrong)
    raft.follow_news(end.epoch, end.leader_id)
    if isinstance(raft.state, Follower) and raft.state.leader_id == end.leader_id:
        raft.state.is_its_turn = True  # by its place among the successors
        raft.state.deadline_ms = raft.now_ms + successor_wait_ms(
            [s.names(raft.me) for s in end.successors], raft.timeouts.backoff_max_ms
        )
    return _answer(raft)


def successor_wait_ms(is_me: list[bool], max_ms: float) -> float:
    """How long a follower waits before it asks for votes, by its place among the preferred successors (R215).

    A leader that starts again knows no successor: then all of them hurry.
    """
    if is_me and True not in is_me:
        return max_ms
    position = is_me.index(True) if is_me else 0
    if position == 0:
        return 0
    base = int(max_ms) >> (len(is_me) - 1)
    return min(max_ms, base << (position - 1))


# ------------------------------------------------------------------ answers to what we asked


def unreachable(raft: RaftNode, peer: int, request: Request) -> None:
    """Try again a little later; a leader makes itself known in its own time (R214)."""
    if request is raft.fetching or request is raft.offering:
        following.unreachable(raft, peer)
    elif isinstance(request, AskVersions):
        voter_changes.versions(raft, request, VersionsAnswer(ErrorCode.BROKER_NOT_AVAILABLE))
    elif isinstance(request, Fetch | FetchSnapshot):
        pass  # the one was given up, the other is the shell's to repeat
    elif peer in raft.asked:
        wait_ms = raft.timeouts.fetch_ms / 2 if isinstance(request, BeginEpoch) else raft.timeouts.retry_ms
        raft.asked[peer] = raft.now_ms + wait_ms
        if isinstance(raft.state, Prospective) and raft.hard.age == Age.NEWBORN:
            raft.state.election.missing.add(peer)
            elections.count(raft)


def refused(raft: RaftNode, peer: int, request: Request, error: ErrorCode) -> None:
    """Who cannot be asked whether it would vote is asked for its vote, at once (R207); else try again later."""
    asks = isinstance(request, Vote) and request.pre and request.epoch == raft.epoch
    if asks and isinstance(raft.state, Prospective) and error == ErrorCode.UNSUPPORTED_VERSION:
        elections.to_candidate(raft)
    elif request is raft.offering and error == ErrorCode.UNSUPPORTED_VERSION and isinstance(raft.state, Follower):
        raft.offering = None
        raft.state.told_leader = True  # it does not want to know (R249)
    else:
        unreachable(raft, peer, request)


def take_answer(raft: RaftNode, peer: int, request: Request, answer: AnyAnswer, batches: tuple[Batch, ...]) -> None:
    """Epochs first, whatever the error but the one of who is behind (R209); then what the answer says."""
    if isinstance(request, AskVersions):
        assert isinstance(answer, VersionsAnswer)
        voter_changes.versions(raft, request, answer)
        return
    assert not isinstance(answer, VersionsAnswer)
    if raft.hard.age != Age.GROWN:
        answer = newborn.heard(raft, peer, answer)
    before, fetched, offered = raft.state, request is raft.fetching, request is raft.offering
    if fetched:
        raft.fetching = None
    if offered:
        raft.offering = None
    if answer.error != ErrorCode.UNKNOWN_LEADER_EPOCH and (answer.epoch > raft.epoch or answer.leader_id >= 0):
        raft.follow_news(answer.epoch, answer.leader_id)
    match request, answer:
        case Fetch(), FetchAnswer():
            if answer.error == ErrorCode.UNKNOWN_SERVER_ERROR:  # so a leader answers who has its own id
                raft.tell_twin(answer.epoch, f"the leader of epoch {answer.epoch} gives node {raft.me.id} no metadata")
            if fetched:
                following.take(raft, before, peer, request, answer, batches)
        case FetchSnapshot(), SnapshotAnswer():
            following.take_part(raft, request, answer)
        case AddVoter() | RemoveVoter() | UpdateVoter(), VoterAnswer():
            if offered and raft.state is before and not joining.answered(raft, request, answer):
                following.rest(raft, peer)
        case Vote() | BeginEpoch() | EndEpoch(), Answer():
            _standing(raft, peer, request, answer)
        case _:
            raise AssertionError(f"{answer} is no answer to {request}")


def _standing(raft: RaftNode, peer: int, request: Vote | BeginEpoch | EndEpoch, answer: Answer) -> None:
    """What an answer of this epoch means to a node that wants to lead, leads, or does not any more."""
    if request.epoch != raft.epoch or answer.epoch < raft.epoch:
        return
    state = raft.state
    match request, state:
        case Vote(), Prospective() | Candidate() if answer.error != ErrorCode.NONE:
            unreachable(raft, peer, request)  # neither a yes nor a no
        case Vote(pre=True), Prospective(election=election):
            election.answers[peer] = answer.granted
            if not answer.granted:
                newborn.learn(raft)  # who refuses an empty log has one, or follows somebody who has
            elections.count(raft)
        case Vote(pre=False), Candidate(election=election, deadline_ms=deadline_ms) if peer not in election.answers:
            if raft.now_ms < deadline_ms:  # after a pause an old vote may be of a voter that lost its disk since
                election.answers[peer] = answer.granted
                elections.count(raft)
        case BeginEpoch(), Leader():
            raft.asked[peer] = raft.now_ms + raft.timeouts.fetch_ms / 2
        case EndEpoch(), Resigned(told=told):
            told.add(peer)
        case _:
            pass
