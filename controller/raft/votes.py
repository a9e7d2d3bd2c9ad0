"""Whom a node gives its vote to.

Source: ``KafkaRaftClient.handleVoteRequest``, ``EpochState.canGrantVote`` and its states (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft.events import NOBODY, HardState, ReplicaKey, Vote
from ottla.controller.raft.states import Candidate, Follower, Leader, Prospective, Resigned, State, Unattached
from ottla.wire.errors import ErrorCode


def shape_error(vote: Vote) -> ErrorCode:
    """What is wrong with a Vote by itself (R211); NONE where nothing is.

    A candidate's log cannot reach into the epoch it asks for; with a pre-vote that epoch is not raised yet.
    """
    wrong = vote.last_epoch > vote.epoch if vote.pre else vote.last_epoch >= vote.epoch
    return ErrorCode.INVALID_REQUEST if wrong or vote.last_epoch < 0 or vote.end_offset < 0 else ErrorCode.NONE


def sender_error(sender_id: int, epoch: int, known_epoch: int) -> ErrorCode:
    """What is wrong with who sent a Vote, BeginQuorumEpoch or EndQuorumEpoch, the epoch first (R211, R214)."""
    if epoch < known_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE


def grants(state: State, hard: HardState, vote: Vote, last_epoch: int, end_offset: int) -> bool:
    """Whether a Vote of our own epoch is granted (the table of R212)."""
    up_to_date = (vote.last_epoch, vote.end_offset) >= (last_epoch, end_offset)
    match state:
        case Leader():
            return False
        case Follower(fetched=fetched):
            return vote.pre and not fetched and up_to_date
        case Candidate() | Resigned():
            return vote.pre and up_to_date
        case Unattached() | Prospective():
            return up_to_date if vote.pre else _real(hard, vote.candidate, up_to_date=up_to_date)


def _real(hard: HardState, candidate: ReplicaKey, *, up_to_date: bool) -> bool:
    if hard.voted is not None:
        return hard.voted.names(candidate)
    return hard.leader_id == NOBODY and up_to_date
