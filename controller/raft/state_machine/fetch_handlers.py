"""Handlers of Fetch and FetchSnapshot requests for the metadata log on the quorum's leader.

Fetches of a majority of the voters advance the high watermark and postpone the leader's resignation (check quorum). A
node that is not the leader responds with an error.

Source: ``KafkaRaftClient.java`` (its ``handleFetch...Request`` methods), ``LeaderState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.state_machine.epoch_states import RaftLeaderState
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
)
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.wire.errors import ErrorCode


def handle_fetch(raft: RaftState, pending: Any, request: Fetch) -> None:
    """Respond to a Fetch, or delay it until there are records, a new high watermark or ``max_wait_ms`` is over.

    The response has an error, a diverging epoch, a snapshot id, or the offset from which the driver reads records. Only
    in the last case the fetch updates the replica's progress and the check quorum, and may advance the high watermark
    (R-217 to R-221). ``pending``: object of `RequestReceived` that the response names.
    """
    state = raft.state
    error = fetch_error(request, raft.epoch, leads=isinstance(state, RaftLeaderState))
    if isinstance(state, RaftLeaderState) and error != ErrorCode.INVALID_REQUEST:
        state.remove_former_directories(request.replica, raft.voters)
    if error == ErrorCode.NONE and request.replica.id == raft.local_replica.id:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        raft.report_duplicate_id(
            raft.epoch, f"Another node fetches the metadata log with node id {raft.local_replica.id}"
        )
    if error != ErrorCode.NONE:
        raft.ready.replies.append(
            OutboundResponse(pending, RaftFetchResponse(error, raft.epoch, raft.leader_id_for(request.replica.id)))
        )
        return
    assert isinstance(state, RaftLeaderState)
    answer = read_for_fetch(
        request, raft.epoch, raft.local_replica.id, raft.log_summary, raft.advertised_high_watermark
    )
    if answer.offset >= 0:
        update_check_quorum(raft, state, request.replica)
        state.update_replica_progress(request, raft.log_summary.end_offset, raft.now_ms, raft.voters)
        raft.update_high_watermark()
        answer = answer._replace(high_watermark=raft.advertised_high_watermark)
    can_respond = (
        answer.offset < 0
        or raft.log_summary.end_offset > request.offset
        or request.high_watermark < answer.high_watermark
    )
    if can_respond or request.max_wait_ms == 0:
        raft.ready.replies.append(OutboundResponse(pending, answer))
    else:
        raft.delayed_fetches.append(DelayedRaftFetch(pending, request, raft.now_ms + request.max_wait_ms, answer))


def handle_fetch_snapshot(raft: RaftState, pending: Any, request: FetchSnapshot) -> None:
    """Respond to a FetchSnapshot with the position from which the driver reads bytes, or an error (R-234).

    Errors: of the epoch, SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE. A valid one counts as a fetch for the check quorum.
    ``pending``: as for `handle_fetch`.
    """
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
    raft.ready.replies.append(OutboundResponse(pending, answer))


def update_check_quorum(raft: RaftState, leader: RaftLeaderState, replica: ReplicaKey) -> None:
    """Record a fetch by ``replica``, if it is a voter; those of a majority postpone the leader's resignation (R-228).

    The leader is one of the majority if it is a voter; its own fetch and those of observers have no effect. After each
    postponement a majority has to fetch anew.
    """
    if leader.record_fetched_voter(raft.local_replica, raft.voters, replica):
        leader.extend_check_quorum(raft.now_ms + raft.timeouts.check_quorum_ms)
