"""What a leader does: the high watermark, answers to fetches, and whether a majority still listens.

Source: ``LeaderState.java``, ``KafkaRaftClient.handleFetchRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import Fetch, FetchAnswer, ReplicaKey
from ottla.controller.raft.states import Leader, Progress
from ottla.wire.errors import ErrorCode

OBSERVED_MS = 300_000
"""An observer that did not fetch for so long is forgotten, and listed no more (``OBSERVER_SESSION_TIMEOUT_MS``)."""
MOST_OBSERVERS = 1000
"""How many are remembered at once: ids are invented easily. Kafka bounds them by time only, when somebody asks."""


class Parked(NamedTuple):
    """A fetch that waits for records, for the high watermark, or for its time to be over (R220)."""

    ticket: object
    request: Fetch
    until_ms: float
    first: FetchAnswer
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


def serve(fetch: Fetch, epoch: int, leader_id: int, log: EpochChain, high_watermark: int) -> FetchAnswer:
    """What the log has for a fetch that was found right."""
    kind, found = log.check(fetch.offset, fetch.last_epoch)
    answer = FetchAnswer(ErrorCode.NONE, epoch, leader_id, high_watermark=high_watermark)
    match kind:
        case "snapshot":
            return answer._replace(snapshot=found)
        case "diverging":
            return answer._replace(diverging=found)
        case _:
            return answer._replace(offset=fetch.offset)


def note_fetch(leader: Leader, fetch: Fetch, end: int, now_ms: float, voters: VoterHistory) -> None:
    """A replica's log reaches to where it fetches from, lower than before too (R219)."""
    if fetch.replica.id < 0:
        return
    at = voters.find(fetch.replica.id)
    key = at if at is not None and at.names(fetch.replica) else fetch.replica
    progress = leader.ends.get(key)
    if progress is None:
        forget_observers(leader, now_ms, voters)
        progress = leader.ends[key] = Progress()
    if fetch.offset >= end:
        progress.caught_up_ms = now_ms
    elif 0 < progress.leader_end <= fetch.offset:
        progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)  # it has what there was then
    progress.leader_end = end
    progress.end = fetch.offset
    progress.fetched_ms = now_ms


def forget_observers(leader: Leader, now_ms: float, voters: VoterHistory) -> None:
    """Make room for one more: whoever was silent for long goes, and who was silent longest where they are too many.

    Who lives fetches at least every half second, and so is never the longest silent.
    """
    observers = sorted((p.fetched_ms, k) for k, p in leader.ends.items() if k not in voters.current)
    too_many = len(observers) - MOST_OBSERVERS + 1
    for number, (fetched_ms, key) in enumerate(observers):
        if number >= too_many and now_ms - fetched_ms < OBSERVED_MS:
            break
        del leader.ends[key]


def majority_end(leader: Leader, voters: VoterHistory) -> int:
    """What a majority of the voters has (R227): their ends sorted down, the one in the middle."""
    ends = sorted((leader.ends.get(v, Progress()).end for v in voters.current), reverse=True)
    return ends[len(ends) // 2]


def heard_from(leader: Leader, me: ReplicaKey, voters: VoterHistory, replica: ReplicaKey) -> bool:
    """Note a sign of life; says whether a majority has given one since the check began (R228)."""
    voter = voters.find(replica.id)
    if voter is None or not voter.names(replica) or replica.id == me.id:
        return False
    leader.heard.add(replica.id)
    needed = voters.majority - (1 if voters.has(me) else 0)
    if len(leader.heard) < needed:
        return False
    leader.heard.clear()
    return True


def successors(leader: Leader, me: ReplicaKey, voters: VoterHistory) -> tuple[ReplicaKey, ...]:
    """The other voters, who has most first (R215)."""
    others = [v for v in voters.current if v.id != me.id]
    return tuple(sorted(others, key=lambda v: -leader.ends.get(v, Progress()).end))
