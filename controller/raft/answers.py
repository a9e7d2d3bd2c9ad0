"""What a raft node answers to others, and what it makes of their answers.

Source: the ``handle...Request`` and ``handle...Response`` methods of ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft import elections
from ottla.controller.raft.chain import voter_keys
from ottla.controller.raft.events import (
    Answer,
    Append,
    Batch,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchAnswer,
    HardState,
    Reply,
    Request,
    Send,
    Vote,
)
from ottla.controller.raft.leading import Parked, fetch_error, heard_from, majority_end, note_fetch, serve
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import Candidate, Follower, Leader, Progress, Prospective, Resigned, Unattached
from ottla.controller.raft.votes import grants, shape_error
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
    if vote.epoch < raft.epoch:
        return _answer(raft, ErrorCode.FENCED_LEADER_EPOCH)
    if vote.epoch > raft.epoch:
        raft.to_unattached(vote.epoch)
    if vote.voter is not None and not vote.voter.is_same(raft.me):
        return _answer(raft, ErrorCode.INVALID_VOTER_KEY)
    granted = grants(raft.state, raft.hard, vote, raft.chain.last_epoch, raft.chain.end)
    if granted and not vote.pre and raft.hard.voted is None:
        raft.hard = HardState(raft.epoch, raft.hard.leader_id, vote.candidate)
        assert isinstance(raft.state, Unattached | Prospective)
        raft.state.deadline_ms = raft.random_election_ms()
    return _answer(raft, granted=granted)


def _begin(raft: RaftNode, begin: BeginEpoch) -> Answer:
    """R214: the leader is followed first; only then the key is compared."""
    if begin.leader_id < 0:
        return _answer(raft, ErrorCode.INVALID_REQUEST)
    if begin.epoch < raft.epoch:
        return _answer(raft, ErrorCode.FENCED_LEADER_EPOCH)
    raft.follow_news(begin.epoch, begin.leader_id)
    if begin.voter is not None and not begin.voter.is_same(raft.me):
        return _answer(raft, ErrorCode.INVALID_VOTER_KEY)
    return _answer(raft)


def _end(raft: RaftNode, end: EndEpoch) -> Answer:
    """R215: the first of the successors tries at once, the others later, each twice as early as the next."""
    if end.leader_id < 0:
        return _answer(raft, ErrorCode.INVALID_REQUEST)
    if end.epoch < raft.epoch:
        return _answer(raft, ErrorCode.FENCED_LEADER_EPOCH)
    raft.follow_news(end.epoch, end.leader_id)
    if isinstance(raft.state, Follower) and raft.state.leader_id == end.leader_id:
        raft.state.deadline_ms = raft.now_ms + successor_wait_ms(
            [s.is_same(raft.me) for s in end.successors], raft.timeouts.backoff_max_ms
        )
    return _answer(raft)


def successor_wait_ms(is_me: list[bool], max_ms: float) -> float:
    """How long a follower waits before it asks for votes, by its place among the preferred successors (R215)."""
    if True not in is_me:
        return max_ms
    position = is_me.index(True)
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
    answer = serve(fetch, raft.epoch, raft.me.id, raft.chain, raft.told_high_watermark)
    if heard_from(state, raft.me, raft.voters, fetch.replica):
        state.deadline_ms = raft.now_ms + raft.timeouts.check_quorum_ms
    if answer.offset >= 0:
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
    if own is not None and own.is_same(raft.me):
        state.ends.setdefault(own, Progress()).end = raft.synced
        _commit(raft, state)


# ------------------------------------------------------------------ answers to what we asked


def unreachable(raft: RaftNode, peer: int, request: Request) -> None:
    """Try again a little later."""
    if isinstance(request, Fetch):
        if request is raft.fetching:
            raft.fetching = None
            raft.asked[peer] = raft.now_ms + raft.timeouts.retry_ms
    elif peer in raft.asked:
        raft.asked[peer] = raft.now_ms + raft.timeouts.retry_ms


def take_answer(
    raft: RaftNode, peer: int, request: Request, answer: Answer | FetchAnswer, batches: tuple[Batch, ...]
) -> None:
    """Epochs first, whatever the error but the one of who is behind (R209); then what the answer says."""
    if answer.error != ErrorCode.UNKNOWN_LEADER_EPOCH and (answer.epoch > raft.epoch or answer.leader_id >= 0):
        raft.follow_news(answer.epoch, answer.leader_id)
    if request.epoch != raft.epoch or answer.epoch < raft.epoch:
        return
    state = raft.state
    match request, state:
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
        case Fetch(), Follower() if request is raft.fetching and isinstance(answer, FetchAnswer):
            raft.fetching = None
            _fetched(raft, state, request, answer, batches)
        case _:
            pass


def _granted(answer: Answer | FetchAnswer) -> bool:
    return isinstance(answer, Answer) and answer.error == ErrorCode.NONE and answer.granted


def _fetched(raft: RaftNode, state: Follower, request: Fetch, answer: FetchAnswer, batches: tuple[Batch, ...]) -> None:
    """R224-R226. The log is as it was when it was asked: nothing else changes a follower's."""
    if answer.error != ErrorCode.NONE:
        raft.asked[state.leader_id] = raft.now_ms + raft.timeouts.retry_ms
        return
    state.deadline_ms = raft.now_ms + raft.timeouts.fetch_ms
    state.fetched = True
    if answer.snapshot is not None:
        raft.loading = raft.ready.load_snapshot = answer.snapshot  # nothing else until it is there
        return
    if answer.diverging is not None:
        epoch, end = answer.diverging
        _, own_end = raft.chain.end_of(epoch)
        raft.truncate(min(end, own_end))
        return
    for batch in batches:
        if batch.first_offset != raft.chain.end or batch.epoch < raft.chain.last_epoch or batch.epoch > raft.epoch:
            break  # what does not fit is left out, with all that follows it
        _take_batch(raft, batch)
    if answer.high_watermark >= 0:
        raft.raise_high_watermark(min(raft.chain.end, answer.high_watermark))


def _take_batch(raft: RaftNode, batch: Batch) -> None:
    count = batch.last_offset - batch.first_offset + 1
    raft.chain.append(batch.epoch, count)
    if batch.voters is not None:
        raft.voters.add(batch.first_offset, voter_keys(batch.voters))
    raft.ready.append.append(Append(batch.first_offset, count, batch.epoch, batch.raw, verbatim=True))


def fetch_more(raft: RaftNode) -> None:
    """A follower asks for what comes next once all it has is on disk: where it asks from is a promise (R225)."""
    state = raft.state
    under_way = raft.fetching is not None or raft.loading is not None
    if not isinstance(state, Follower) or under_way or raft.synced < raft.chain.end:
        return
    if raft.asked.get(state.leader_id, 0) > raft.now_ms:
        return
    raft.asked.pop(state.leader_id, None)
    chain = raft.chain
    raft.fetching = Fetch(
        raft.me, raft.epoch, chain.end, chain.last_epoch, raft.high_watermark, raft.timeouts.max_wait_ms
    )
    raft.ready.sends.append(Send(state.leader_id, raft.fetching))
