"""What a raft node answers to others, and what it makes of their answers.

Source: the ``handle...Request`` and ``handle...Response`` methods of ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft import elections, following
from ottla.controller.raft.events import (
    Answer,
    Batch,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    HardState,
    Reply,
    Request,
    Vote,
)
from ottla.controller.raft.leading import Parked, fetch_error, heard_from, majority_end, note_fetch, serve
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import Candidate, Follower, Leader, Progress, Prospective, Resigned, Unattached
from ottla.controller.raft.votes import grants, sender_error, shape_error
from ottla.wire.errors import ErrorCode


def to_request(raft: RaftNode, ticket: Any, request: Request) -> None:
    """Answer a request; a fetch may have to wait for its answer."""
    match request:
        case Vote():
            answer = _vote(raft, request)
        case BeginEpoch():
            answer = _begin(raft, request)
        case EndEpoch():
            answer = _end(raft, request)
        case Fetch():
            _fetch(raft, ticket, request)
            return
    raft.ready.replies.append(Reply(ticket, answer))


def _answer(raft: RaftNode, error: ErrorCode = ErrorCode.NONE, *, granted: bool = False) -> Answer:
    return Answer(error, raft.epoch, raft.leader_id, granted)


def _vote(raft: RaftNode, vote: Vote) -> Answer:
    """R211, R212. A higher epoch is taken over before anything is judged, of a pre-vote too (R59)."""
    wrong = shape_error(vote)
    if wrong != ErrorCode.NONE:
        return _answer(raft, wrong)
    wrong = sender_error(vote.candidate.id, vote.epoch, raft.epoch)
    if wrong != ErrorCode.NONE:
        return _answer(raft, wrong)
    if vote.epoch > raft.epoch:
        raft.to_unattached(vote.epoch)
    if vote.voter is not None and not vote.voter.names(raft.me):
        return _answer(raft, ErrorCode.INVALID_VOTER_KEY)
    granted = grants(raft.state, raft.hard, vote, raft.chain.last_epoch, raft.chain.end)
    if granted and not vote.pre and raft.hard.voted is None:
        raft.hard = HardState(raft.epoch, raft.hard.leader_id, vote.candidate)
        assert isinstance(raft.state, Unattached | Prospective)
        raft.state.deadline_ms = raft.random_election_ms()
    return _answer(raft, granted=granted)


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


# ------------------------------------------------------------------ fetches, as leader


def _fetch(raft: RaftNode, ticket: Any, fetch: Fetch) -> None:
    state = raft.state
    error = fetch_error(fetch, raft.epoch, leads=isinstance(state, Leader))
    if error != ErrorCode.NONE:
        raft.ready.replies.append(Reply(ticket, FetchAnswer(error, raft.epoch, raft.leader_id)))
        return
    assert isinstance(state, Leader)
    if fetch.replica.id == raft.me.id:
        error = ErrorCode.UNKNOWN_SERVER_ERROR  # somebody uses this node's id
        raft.ready.replies.append(Reply(ticket, FetchAnswer(error, raft.epoch, raft.leader_id)))
        return
    answer = serve(fetch, raft.epoch, raft.me.id, raft.chain, raft.told_high_watermark)
    if answer.offset >= 0:
        if heard_from(state, raft.me, raft.voters, fetch.replica):
            state.deadline_ms = raft.now_ms + raft.timeouts.check_quorum_ms
        note_fetch(state, fetch, raft.chain.end, raft.now_ms, raft.voters)
        _commit(raft, state)
        answer = answer._replace(high_watermark=raft.told_high_watermark)
    news = answer.offset < 0 or raft.chain.end > fetch.offset or fetch.high_watermark < answer.high_watermark
    if news or fetch.max_wait_ms == 0:
        raft.ready.replies.append(Reply(ticket, answer))
    else:
        raft.parked.append(Parked(ticket, fetch, raft.now_ms + fetch.max_wait_ms, answer))


def _commit(raft: RaftNode, leader: Leader) -> None:
    """R227: only what a majority has, and only once it reaches into this leader's own epoch."""
    end = majority_end(leader, raft.voters)
    if end > leader.epoch_start:
        raft.raise_high_watermark(end)


def count_own_end(raft: RaftNode) -> None:
    """What is on the disk here counts for this node where it is a voter."""
    state = raft.state
    assert isinstance(state, Leader)
    own = raft.voters.find(raft.me.id)
    if own is not None and own.names(raft.me):
        state.ends.setdefault(own, Progress()).end = raft.synced
        _commit(raft, state)


# ------------------------------------------------------------------ answers to what we asked


def unreachable(raft: RaftNode, peer: int, request: Request) -> None:
    """Try again a little later; a leader makes itself known in its own time (R214)."""
    if isinstance(request, Fetch):
        if request is raft.fetching:
            following.unreachable(raft, peer)
    elif peer in raft.asked:
        wait_ms = raft.timeouts.fetch_ms / 2 if isinstance(request, BeginEpoch) else raft.timeouts.retry_ms
        raft.asked[peer] = raft.now_ms + wait_ms


def refused(raft: RaftNode, peer: int, request: Request, error: ErrorCode) -> None:
    """Who cannot be asked whether it would vote is asked for its vote, at once (R207); else try again later."""
    asks = isinstance(request, Vote) and request.pre and request.epoch == raft.epoch
    if asks and isinstance(raft.state, Prospective) and error == ErrorCode.UNSUPPORTED_VERSION:
        elections.to_candidate(raft)
    else:
        unreachable(raft, peer, request)


def take_answer(
    raft: RaftNode, peer: int, request: Request, answer: Answer | FetchAnswer, batches: tuple[Batch, ...]
) -> None:
    """Epochs first, whatever the error but the one of who is behind (R209); then what the answer says."""
    before, fetched = raft.state, request is raft.fetching
    if fetched:
        raft.fetching = None
    if answer.error != ErrorCode.UNKNOWN_LEADER_EPOCH and (answer.epoch > raft.epoch or answer.leader_id >= 0):
        raft.follow_news(answer.epoch, answer.leader_id)
    if fetched:
        assert isinstance(request, Fetch)
        assert isinstance(answer, FetchAnswer)
        following.take(raft, before, peer, request, answer, batches)
        return
    if request.epoch != raft.epoch or answer.epoch < raft.epoch:
        return
    state = raft.state
    match request, state:
        case Vote(), Prospective() | Candidate() if answer.error != ErrorCode.NONE:
            unreachable(raft, peer, request)  # neither a yes nor a no
        case Vote(pre=True), Prospective(election=election):
            election.answers[peer] = _granted(answer)
            elections.count(raft)
        case Vote(pre=False), Candidate(election=election) if peer not in election.answers:
            election.answers[peer] = _granted(answer)
            elections.count(raft)
        case BeginEpoch(), Leader():
            raft.asked[peer] = raft.now_ms + raft.timeouts.fetch_ms / 2
        case EndEpoch(), Resigned(told=told):
            told.add(peer)
        case _:
            pass


def _granted(answer: Answer | FetchAnswer) -> bool:
    return isinstance(answer, Answer) and answer.granted
