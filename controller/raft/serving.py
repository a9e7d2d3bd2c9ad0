"""What a leader gives to who fetches log or snapshot, and what it learns by it: the high watermark, and who lives.

Source: ``KafkaRaftClient.java`` (its ``handleFetch...Request`` methods), ``LeaderState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.chain import VoterHistory
from ottla.controller.raft.events import Fetch, FetchAnswer, FetchSnapshot, ReplicaKey, Reply, SnapshotAnswer
from ottla.controller.raft.leading import (
    Parked,
    fetch_error,
    heard_from,
    leader_error,
    note_fetch,
    serve,
)
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import FOREVER_MS, Leader
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import ZERO_UUID


def fetch(raft: RaftNode, ticket: Any, request: Fetch) -> None:
    """Answer a fetch, or let it wait (R217-R221)."""
    state = raft.state
    error = fetch_error(request, raft.epoch, leads=isinstance(state, Leader))
    if isinstance(state, Leader) and error != ErrorCode.INVALID_REQUEST:
        _note_directory(state, request.replica, raft.voters)
    if error == ErrorCode.NONE and request.replica.id == raft.me.id:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        raft.tell_twin(raft.epoch, f"somebody else asks for the metadata as node {raft.me.id}")
    if error != ErrorCode.NONE:
        raft.ready.replies.append(Reply(ticket, FetchAnswer(error, raft.epoch, raft.leader_for(request.replica.id))))
        return
    assert isinstance(state, Leader)
    answer = serve(request, raft.epoch, raft.me.id, raft.chain, raft.told_high_watermark)
    if answer.offset >= 0:
        listened_to(raft, state, request.replica)
        note_fetch(state, request, raft.chain.end, raft.now_ms, raft.voters)
        raft.commit()
        answer = answer._replace(high_watermark=raft.told_high_watermark)
    news = answer.offset < 0 or raft.chain.end > request.offset or request.high_watermark < answer.high_watermark
    if news or request.max_wait_ms == 0:
        raft.ready.replies.append(Reply(ticket, answer))
    else:
        raft.parked.append(Parked(ticket, request, raft.now_ms + request.max_wait_ms, answer))


def _note_directory(leader: Leader, replica: ReplicaKey, voters: VoterHistory) -> None:
    """Of one id only the directory heard last is there: what another one had is no reason to make it a voter.

    Kafka adds a replica that had everything within the last hour and asks only whether somebody answers at its address:
    one whose disk was emptied meanwhile. Where that makes two voters of one, nothing is ever committed again.
    """
    if replica.id < 0 or replica.directory_id == ZERO_UUID:
        return
    for key in [k for k in leader.ends if k.id == replica.id and not k.is_same(replica) and k not in voters.current]:
        del leader.ends[key]


def snapshot(raft: RaftNode, ticket: Any, request: FetchSnapshot) -> None:
    """Answer with what the shell may read of a snapshot: raw bytes, not cut at batches (R234)."""
    state, there = raft.state, request.size_bytes >= 0 and request.snapshot[0] > 0
    error = leader_error(request.epoch, raft.epoch, leads=isinstance(state, Leader))
    if error == ErrorCode.NONE and not there:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error == ErrorCode.NONE and not 0 <= request.position < request.size_bytes:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    answer = SnapshotAnswer(error, raft.epoch, raft.leader_for(request.replica.id))
    if error == ErrorCode.NONE:
        assert isinstance(state, Leader)
        listened_to(raft, state, request.replica)
        answer = answer._replace(snapshot=request.snapshot, size_bytes=request.size_bytes, position=request.position)
    raft.ready.replies.append(Reply(ticket, answer))


def listened_to(raft: RaftNode, leader: Leader, replica: ReplicaKey) -> None:
    """A replica gave a sign of life; one of a majority puts the check of the quorum off (R228)."""
    if heard_from(leader, raft.me, raft.voters, replica) and leader.deadline_ms < FOREVER_MS:
        leader.deadline_ms = raft.now_ms + raft.timeouts.check_quorum_ms
