"""Voter change requests of a follower to the quorum's leader: update of its endpoints, and joining the voter set.

Source: ``KafkaRaftClient.pollFollowerAsVoter``, ``.pollFollowerAsObserver`` (apache/kafka 4.3.1).

From KIP-853; joining by itself (``controller.quorum.auto.join.enable``): KIP-1186.
"""

from __future__ import annotations

from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState
from ottla.controller.raft.state_machine.events import (
    AddVoter,
    RemoveVoter,
    UpdateVoter,
    VoterChangeResponse,
    VoterState,
)
from ottla.controller.raft.state_machine.log_summary import voter_needs_update
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import VotersRecordVoter

_FINAL_ERRORS = {
    AddVoter: (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER),
    RemoveVoter: (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND),
}
"""Results after which the next request waits for the next period, without a backoff of the leader."""


def next_voter_request(raft: RaftState) -> AddVoter | RemoveVoter | UpdateVoter | None:
    """Return the voter change to request instead of the next fetch, or None; one per fetch timeout (R-249, R-250).

    A voter updates its endpoints or versions if they differ; an observer with auto-join first removes its former
    directory from the voter set, then adds itself. The time of the next one is set; a caller must send the returned
    one.
    """
    state, entry = raft.state, raft.voter_entry
    assert isinstance(state, RaftFollowerState)
    if entry is None or raft.hard_state.voter_state != VoterState.NORMAL or raft.now_ms < state.voter_request_due_ms:
        return None
    out: AddVoter | RemoveVoter | UpdateVoter | None = None
    if raft.voters.is_voter(raft.local_replica):
        if _needs_voter_update(raft, state, entry):
            feature = entry.k_raft_version_feature
            versions = (feature.min_supported_version, feature.max_supported_version)
            out = UpdateVoter(raft.local_replica, raft.epoch, tuple(entry.endpoints), *versions)
    elif raft.auto_join and raft.voters.kraft_version >= 1:
        before = raft.voters.find_voter(raft.local_replica.id)
        joins = AddVoter(raft.local_replica, tuple(entry.endpoints), ack_when_committed=False)
        out = joins if before is None else RemoveVoter(before)
    state.reset_update_voter_set_period(raft.now_ms + raft.timeouts.fetch_ms)
    return out


def _needs_voter_update(raft: RaftState, state: RaftFollowerState, entry: VotersRecordVoter) -> bool:
    record = raft.voters.record
    if record is None:
        return not state.has_updated_leader
    return voter_needs_update(record.voters, entry)


def handle_voter_response(
    raft: RaftState, request: AddVoter | RemoveVoter | UpdateVoter, answer: VoterChangeResponse
) -> bool:
    """Process the leader's response to a voter change; return False if requests to the leader must back off.

    After a successful update, or UNSUPPORTED_VERSION, it is not sent again to this leader, and the fetch timeout is
    restarted.
    """
    state = raft.state
    if not isinstance(state, RaftFollowerState):
        return True
    if not isinstance(request, UpdateVoter):
        return answer.error in _FINAL_ERRORS[type(request)]
    if request.epoch != raft.epoch or answer.epoch != raft.epoch:
        return False
    if answer.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        return False
    state.set_has_updated_leader()
    raft.reset_fetch_timeout()
    return True
