"""What a leader gives to who fetches log or snapshot, and what it learns by it: the high watermark, and who lives.

Source: ``KafkaRaftClient.java`` (its ``handleFetch...Request`` methods), ``LeaderState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.state_machine.epoch_states import NO_DEADLINE_MS, RaftLeaderState
from ottla.controller.raft.state_machine.events import (
    Fetch,
    FetchSnapshot,
    OutboundResponse,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    ReplicaKey,
)
from ottla.controller.raft.state_machine.leader import (
    DelayedRaftFetch,
    fetch_error,
    leader_error,
    read_for_fetch,
    record_fetched_voter,
    update_replica_progress,
)
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.wire.codec.schema import ZERO_UUID
from ottla.wire.errors import ErrorCode


def handle_fetch(raft: RaftState, ticket: Any, request: Fetch) -> None:
    """Answer a fetch, or let it wait (R217-R221)."""
    state = raft.state
    error = fetch_error(request, raft.epoch, leads=isinstance(state, RaftLeaderState))
    if isinstance(state, RaftLeaderState) and error != ErrorCode.INVALID_REQUEST:
        _drop_former_directories(state, request.replica, raft.voters)
    if error == ErrorCode.NONE and request.replica.id == raft.local_replica.id:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        raft.report_duplicate_id(raft.epoch, f"somebody else asks for the metadata as node {raft.local_replica.id}")
    if error != ErrorCode.NONE:
        raft.ready.replies.append(
            OutboundResponse(ticket, RaftFetchResponse(error, raft.epoch, raft.leader_id_for(request.replica.id)))
        )
        return
    assert isinstance(state, RaftLeaderState)
    answer = read_for_fetch(
        request, raft.epoch, raft.local_replica.id, raft.log_summary, raft.advertised_high_watermark
    )
    if answer.offset >= 0:
        update_check_quorum(raft, state, request.replica)
        update_replica_progress(state, request, raft.log_summary.end_offset, raft.now_ms, raft.voters)
        raft.update_high_watermark()
        answer = answer._replace(high_watermark=raft.advertised_high_watermark)
    news = (
        answer.offset < 0
        or raft.log_summary.end_offset > request.offset
        or request.high_watermark < answer.high_watermark
    )
    if news or request.max_wait_ms == 0:
        raft.ready.replies.append(OutboundResponse(ticket, answer))
    else:
        raft.delayed_fetches.append(DelayedRaftFetch(ticket, request, raft.now_ms + request.max_wait_ms, answer))


def _drop_former_directories(leader: RaftLeaderState, replica: ReplicaKey, voters: VoterSetHistory) -> None:
    """Of one id only the directory heard last is there: what another one had is no reason to make it a voter.

    Kafka adds a replica that had everything within the last hour and asks only whether somebody answers at its address:
    one whose disk was emptied meanwhile. Where that makes two voters of one, nothing is ever committed again.
    """
    if replica.id < 0 or replica.directory_id == ZERO_UUID:
        return
    for key in [
        k for k in leader.replicas if k.id == replica.id and not k.may_be_same(replica) and k not in voters.current
    ]:
        del leader.replicas[key]


def handle_fetch_snapshot(raft: RaftState, ticket: Any, request: FetchSnapshot) -> None:
    """Answer with what the shell may read of a snapshot: raw bytes, not cut at batches (R234)."""
    state, there = raft.state, request.size_bytes >= 0 and request.snapshot[0] > 0
    error = leader_error(request.epoch, raft.epoch, leads=isinstance(state, RaftLeaderState))
    if error == ErrorCode.NONE and not there:
        error = ErrorCode.SNAPSHOT_NOT_FOUND
    if error == ErrorCode.NONE and not 0 <= request.position < request.size_bytes:
        error = ErrorCode.POSITION_OUT_OF_RANGE
    answer = RaftFetchSnapshotResponse(error, raft.epoch, raft.leader_id_for(request.replica.id))
    if error == ErrorCode.NONE:
        assert isinstance(state, RaftLeaderState)
        update_check_quorum(raft, state, request.replica)
        answer = answer._replace(snapshot=request.snapshot, size_bytes=request.size_bytes, position=request.position)
    raft.ready.replies.append(OutboundResponse(ticket, answer))


def update_check_quorum(raft: RaftState, leader: RaftLeaderState, replica: ReplicaKey) -> None:
    """A replica gave a sign of life; one of a majority puts the check of the quorum off (R228)."""
    if record_fetched_voter(leader, raft.local_replica, raft.voters, replica) and leader.deadline_ms < NO_DEADLINE_MS:
        leader.deadline_ms = raft.now_ms + raft.timeouts.check_quorum_ms
