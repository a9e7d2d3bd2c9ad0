"""Rules for the validation and granting of votes in the quorum, as pure functions.

Source: ``KafkaRaftClient.handleVoteRequest``, ``EpochState.canGrantVote`` and its states (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    EpochState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ResignedState,
    UnattachedState,
)
from ottla.controller.raft.state_machine.events import NO_NODE_ID, HardState, ReplicaKey, Vote
from ottla.wire.errors import ErrorCode


def malformed_vote_error(vote: Vote) -> ErrorCode:
    """Return INVALID_REQUEST for a Vote with impossible fields (last row of R-211's table), else NONE.

    The last epoch of the candidate's log must be below the epoch of the vote; in a pre-vote they may be equal. Neither
    the last epoch nor the end offset may be negative.
    """
    wrong = vote.last_epoch > vote.epoch if vote.pre_vote else vote.last_epoch >= vote.epoch
    return ErrorCode.INVALID_REQUEST if wrong or vote.last_epoch < 0 or vote.end_offset < 0 else ErrorCode.NONE


def sender_error(sender_id: int, epoch: int, known_epoch: int) -> ErrorCode:
    """Return the error of a Vote, BeginQuorumEpoch or EndQuorumEpoch by its epoch and sender, or NONE (R-211, R-214).

    FENCED_LEADER_EPOCH for an epoch below ``known_epoch`` (this node's), INVALID_REQUEST for a negative ``sender_id``.
    """
    if epoch < known_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if sender_id < 0 else ErrorCode.NONE


def can_grant_vote(state: EpochState, hard: HardState, vote: Vote, last_epoch: int, end_offset: int) -> bool:
    """Return True if a Vote or pre-vote is granted, by this node's state, earlier vote and log end (R-212).

    The vote's epoch is this node's. ``last_epoch``, ``end_offset``: of this node's log. Nothing is changed.
    """
    up_to_date = (vote.last_epoch, vote.end_offset) >= (last_epoch, end_offset)
    match state:
        case RaftLeaderState():
            return False
        case RaftFollowerState(has_fetched_from_leader=fetched):
            return vote.pre_vote and not fetched and up_to_date
        case CandidateState() | ResignedState():
            return vote.pre_vote and up_to_date
        case UnattachedState() | ProspectiveState():
            return (
                up_to_date if vote.pre_vote else _can_grant_standard_vote(hard, vote.candidate, up_to_date=up_to_date)
            )


def _can_grant_standard_vote(hard: HardState, candidate: ReplicaKey, *, up_to_date: bool) -> bool:
    if hard.voted_key is not None:
        return hard.voted_key.identifies(candidate)
    return hard.leader_id == NO_NODE_ID and up_to_date
