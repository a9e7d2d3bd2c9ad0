"""How a node without leadership gets the log: whom it asks, and what it makes of what it is given.

Source: ``KafkaRaftClient.java`` (its ``...Fetch...`` methods), ``RequestManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft import joining, newborn
from ottla.controller.raft.chain import voter_keys
from ottla.controller.raft.events import (
    NOBODY,
    Age,
    Append,
    Batch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Send,
    SnapshotAnswer,
)
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import Follower, State, Unattached
from ottla.wire.errors import ErrorCode


def fetch_more(raft: RaftNode) -> None:
    """Ask for what comes next once all there is lies on disk: where it is asked from is a promise (R225).

    One fetch is under way at a time. Who knows no leader asks others for it in the same way (R223).
    """
    under_way = raft.fetching is not None or raft.loading is not None or raft.offering is not None
    if not isinstance(raft.state, Follower | Unattached) or under_way or raft.synced < raft.chain.end:
        return
    peer = _whom(raft)
    if peer == NOBODY:
        return
    raft.asked.pop(peer, None)
    raft.fetching_peer = peer
    raft.fetching_until_ms = raft.now_ms + raft.timeouts.request_ms
    if isinstance(raft.state, Follower) and peer == raft.state.leader_id:
        raft.offering = joining.offer(raft)
        if raft.offering is not None:
            raft.ready.sends.append(Send(peer, raft.offering))
            return
    chain = raft.chain
    raft.fetching = Fetch(
        newborn.fetches_as(raft),
        raft.epoch,
        chain.end,
        chain.last_epoch,
        raft.high_watermark,
        raft.timeouts.max_wait_ms,
        raft.timeouts.fetch_bytes,
    )
    raft.ready.sends.append(Send(peer, raft.fetching))


def _whom(raft: RaftNode) -> int:
    """The leader; else, or while it does not answer, anybody who may know one (R223); -1 where all have to rest."""
    if isinstance(raft.state, Follower) and _rested(raft, raft.state.leader_id):
        return raft.state.leader_id
    able = [peer for peer in raft.bootstrap if _rested(raft, peer)]
    return raft.any_of(able) if able else NOBODY


def _rested(raft: RaftNode, peer: int) -> bool:
    return raft.asked.get(peer, 0) <= raft.now_ms


def unreachable(raft: RaftNode, peer: int) -> None:
    """What is under way failed, or came to nothing: its peer rests a little."""
    raft.fetching = raft.offering = None
    rest(raft, peer)


def rest(raft: RaftNode, peer: int) -> None:
    """Ask a peer nothing for a while."""
    raft.asked[peer] = raft.now_ms + raft.timeouts.retry_ms


def take(
    raft: RaftNode, asked_in: State, peer: int, request: Fetch, answer: FetchAnswer, batches: tuple[Batch, ...]
) -> None:
    """What a fetch brought (R224-R226); the log is as it was when it was asked, for nothing else changes it.

    Who asked without a leader, and was answered by it, follows it by now: what it sent counts at once (R209).
    """
    state = raft.state
    current = request.epoch == answer.epoch == raft.epoch
    if not isinstance(state, Follower) or not current or answer.error != ErrorCode.NONE:
        if state is asked_in:
            rest(raft, peer)
        return
    raft.heard_leader()
    if answer.snapshot is not None:
        raft.loading = raft.ready.load_snapshot = answer.snapshot  # nothing else until it is there
        return
    if answer.diverging is not None:
        epoch, end = answer.diverging
        own_epoch, own_end = raft.chain.end_of(epoch)
        if epoch == 0:
            own_end = min(end, raft.chain.end)
        elif own_epoch == epoch:
            own_end = min(end, own_end)
        # else only what is newer than that epoch goes now: below, the two logs have no batch in common to end at
        if own_end >= raft.high_watermark:
            raft.truncate(own_end)
            return
        committed = raft.high_watermark
        raft.ready.doubt = f"{peer} wants the log cut at {end} of epoch {epoch}, but it is committed to {committed}"
        rest(raft, peer)
        return
    if raft.hard.age != Age.GROWN:
        newborn.fetched(raft, request, answer, nothing_new=not batches)
    for batch in batches:
        if batch.first_offset != raft.chain.end or batch.epoch < raft.chain.last_epoch or batch.epoch > raft.epoch:
            break  # what does not fit is left out, with all that follows it
        _take_batch(raft, batch)
    if answer.high_watermark >= 0:
        raft.raise_high_watermark(min(raft.chain.end, answer.high_watermark))


def take_part(raft: RaftNode, request: FetchSnapshot, answer: SnapshotAnswer) -> None:
    """A part of the snapshot came; or the leader has it no more, or means another: then the log is asked for again.

    After any other error the shell asks again. Kafka ends where another snapshot or position is answered (R235);
    asking anew loses nothing.
    """
    state = raft.state
    current = request.epoch == answer.epoch == raft.epoch and request.snapshot == raft.loading
    if not isinstance(state, Follower) or not current:
        return
    right = (answer.snapshot, answer.position) == (request.snapshot, request.position)
    if answer.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        raft.loading = None
        raft.heard_leader()
    elif answer.error == ErrorCode.NONE and right:
        raft.heard_leader()
    elif answer.error == ErrorCode.NONE:
        raft.loading = None


def _take_batch(raft: RaftNode, batch: Batch) -> None:
    count = batch.last_offset - batch.first_offset + 1
    raft.chain.append(batch.epoch, count)
    if batch.voters is not None:
        raft.voters.add(batch.first_offset, voter_keys(batch.voters), batch.voters)
    raft.ready.append.append(Append(batch.first_offset, count, batch.epoch, batch.raw, verbatim=True))
