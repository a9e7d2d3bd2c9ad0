"""What a leader does: the high watermark, answers to fetches, and whether a majority still listens.

Source: ``LeaderState.java``, ``KafkaRaftClient.handleFetchRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.raft.state_machine.epoch_states import RaftLeaderState, ReplicaProgress
from ottla.controller.raft.state_machine.events import Fetch, RaftFetchResponse, ReplicaKey
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.wire.errors import ErrorCode

OBSERVER_SESSION_TIMEOUT_MS = 300_000
"""An observer that did not fetch for so long is forgotten, and listed no more (``OBSERVER_SESSION_TIMEOUT_MS``)."""
MAX_OBSERVERS = 1000
"""How many are remembered at once: ids are invented easily. Kafka bounds them by time only, when somebody asks."""


class DelayedRaftFetch(NamedTuple):
    """A fetch that waits for records, for the high watermark, or for its time to be over (R220)."""

    pending_request: object
    request: Fetch
    deadline_ms: float
    initial_response: RaftFetchResponse
    """The answer of its arrival, which goes out when nothing came."""


def fetch_error(fetch: Fetch, epoch: int, *, leads: bool) -> ErrorCode:
    """Why a fetch cannot be served, in Kafka's order (R217)."""
    if min(fetch.max_wait_ms, fetch.offset, fetch.last_epoch) < 0 or fetch.last_epoch > fetch.epoch:
        return ErrorCode.INVALID_REQUEST
    return leader_error(fetch.epoch, epoch, leads=leads)


def leader_error(asked: int, epoch: int, *, leads: bool) -> ErrorCode:
    """Why what only the leader of an epoch can do cannot be done here (``validateLeaderOnlyRequest``)."""
    if asked < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if asked > epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER


def read_for_fetch(fetch: Fetch, epoch: int, leader_id: int, log: LogSummary, high_watermark: int) -> RaftFetchResponse:
    """What the log has for a fetch that was found right."""
    kind, found = log.validate_offset_and_epoch(fetch.offset, fetch.last_epoch)
    answer = RaftFetchResponse(ErrorCode.NONE, epoch, leader_id, high_watermark=high_watermark)
    match kind:
        case "snapshot":
            return answer._replace(snapshot=found)
        case "diverging":
            return answer._replace(diverging=found)
        case _:
            return answer._replace(offset=fetch.offset)


def update_replica_progress(
    leader: RaftLeaderState, fetch: Fetch, end: int, now_ms: float, voters: VoterSetHistory
) -> None:
    """A replica's log reaches to where it fetches from, lower than before too (R219)."""
    if fetch.replica.id < 0:
        return
    at = voters.find_voter(fetch.replica.id)
    key = at if at is not None and at.identifies(fetch.replica) else fetch.replica
    progress = leader.replicas.get(key)
    if progress is None:
        remove_inactive_observers(leader, now_ms, voters)
        progress = leader.replicas[key] = ReplicaProgress()
    if fetch.offset >= end:
        progress.last_caught_up_ms = now_ms
    elif 0 < progress.last_fetch_leader_end_offset <= fetch.offset:
        # it has what there was then
        progress.last_caught_up_ms = max(progress.last_caught_up_ms, progress.last_fetch_ms)
    progress.last_fetch_leader_end_offset = end
    progress.end_offset = fetch.offset
    progress.last_fetch_ms = now_ms


def remove_inactive_observers(leader: RaftLeaderState, now_ms: float, voters: VoterSetHistory) -> None:
    """Make room for one more: whoever was silent for long goes, and who was silent longest where they are too many.

    Who lives fetches at least every half second, and so is never the longest silent.
    """
    observers = sorted((p.last_fetch_ms, k) for k, p in leader.replicas.items() if k not in voters.current)
    too_many = len(observers) - MAX_OBSERVERS + 1
    for number, (fetched_ms, key) in enumerate(observers):
        if number >= too_many and now_ms - fetched_ms < OBSERVER_SESSION_TIMEOUT_MS:
            break
        del leader.replicas[key]


def majority_end_offset(leader: RaftLeaderState, voters: VoterSetHistory) -> int:
    """What a majority of the voters has (R227): their ends sorted down, the one in the middle."""
    ends = sorted((leader.replicas.get(v, ReplicaProgress()).end_offset for v in voters.current), reverse=True)
    return ends[len(ends) // 2]


def record_fetched_voter(leader: RaftLeaderState, me: ReplicaKey, voters: VoterSetHistory, replica: ReplicaKey) -> bool:
    """Note a sign of life; says whether a majority has given one since the check began (R228)."""
    voter = voters.find_voter(replica.id)
    if voter is None or not voter.identifies(replica) or replica.id == me.id:
        return False
    leader.fetched_voters.add(replica.id)
    needed = voters.majority_size - (1 if voters.is_voter(me) else 0)
    if len(leader.fetched_voters) < needed:
        return False
    leader.fetched_voters.clear()
    return True


def preferred_successors(leader: RaftLeaderState, me: ReplicaKey, voters: VoterSetHistory) -> tuple[ReplicaKey, ...]:
    """The other voters, who has most first (R215)."""
    others = [v for v in voters.current if v.id != me.id]
    return tuple(sorted(others, key=lambda v: -leader.replicas.get(v, ReplicaProgress()).end_offset))
