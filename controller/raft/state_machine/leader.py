"""Rules of the quorum's leader, as functions without effects: errors of fetches, high watermark, preferred successors.

Source: ``LeaderState.java``, ``KafkaRaftClient.handleFetchRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.raft.state_machine.epoch_states import RaftLeaderState, ReplicaProgress
from ottla.controller.raft.state_machine.events import Fetch, RaftFetchResponse, ReplicaKey
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.wire.errors import ErrorCode


class DelayedRaftFetch(NamedTuple):
    """Fetch of a replica that waits for records, for a new high watermark, or for its deadline (R-220).

    ``deadline_ms``: monotonic; arrival plus ``max_wait_ms``.
    """

    pending_request: object
    request: Fetch
    deadline_ms: float
    initial_response: RaftFetchResponse
    """Response computed when the fetch arrived; sent at the deadline if no record arrives before."""


def fetch_error(fetch: Fetch, epoch: int, *, leads: bool) -> ErrorCode:
    """Return the error of a Fetch to a node in ``epoch``, checked in Kafka's order (R-217); NONE for a valid one.

    ``leads``: this node is the leader of ``epoch``.
    """
    if min(fetch.max_wait_ms, fetch.offset, fetch.last_epoch) < 0 or fetch.last_epoch > fetch.epoch:
        return ErrorCode.INVALID_REQUEST
    return leader_error(fetch.epoch, epoch, leads=leads)


def leader_error(request_epoch: int, epoch: int, *, leads: bool) -> ErrorCode:
    """Return the error of a request with epoch ``request_epoch`` that only the leader of ``epoch`` can serve, or NONE.

    FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one, NOT_LEADER_OR_FOLLOWER
    (``validateLeaderOnlyRequest``). ``leads``: this node is that leader.
    """
    if request_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request_epoch > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER


def read_for_fetch(fetch: Fetch, epoch: int, leader_id: int, log: LogSummary, high_watermark: int) -> RaftFetchResponse:
    """Return the response to a valid Fetch: offset from which to read, diverging epoch, or snapshot to load.

    ``log``: of this node, the leader. No records are read here. ``high_watermark``: the one to advertise, or -1.
    """
    kind, found = log.validate_offset_and_epoch(fetch.offset, fetch.last_epoch)
    answer = RaftFetchResponse(ErrorCode.NONE, epoch, leader_id, high_watermark=high_watermark)
    match kind:
        case "snapshot":
            return answer._replace(snapshot=found)
        case "diverging":
            return answer._replace(diverging=found)
        case _:
            return answer._replace(offset=fetch.offset)


def majority_end_offset(leader: RaftLeaderState, voters: VoterSetHistory) -> int:
    """Return the offset below which a majority of the voters has the log (R-227); -1 while no majority has fetched."""
    ends = sorted((leader.replicas.get(v, ReplicaProgress()).end_offset for v in voters.current), reverse=True)
    return ends[len(ends) // 2]


def preferred_successors(leader: RaftLeaderState, me: ReplicaKey, voters: VoterSetHistory) -> tuple[ReplicaKey, ...]:
    """Return the voters other than ``me`` in descending order of their end offsets (R-215)."""
    others = [v for v in voters.current if v.id != me.id]
    return tuple(sorted(others, key=lambda v: -leader.replicas.get(v, ReplicaProgress()).end_offset))
