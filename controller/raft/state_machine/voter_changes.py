"""Changes of the quorum's voter set on its leader: one replica at a time, each committed before the next.

A new voter set is in force once it is appended (R-242), for the high watermark as for elections.

Source: ``AddVoterHandler.java``, ``RemoveVoterHandler.java``, ``UpdateVoterHandler.java``,
``LeaderState.maybeAppendUpgradedKRaftVersion`` (apache/kafka 4.3.1).

KIP-853; responses at append: KIP-1186.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.controller.raft.state_machine import fetch_handlers
from ottla.controller.raft.state_machine.epoch_states import (
    PendingVoterChange,
    RaftLeaderState,
    ReplicaProgress,
)
from ottla.controller.raft.state_machine.events import (
    AddVoter,
    KRaftVersionsResponse,
    OutboundRequest,
    OutboundResponse,
    QueryKRaftVersions,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    UpgradeKRaftVersion,
    VoterChangeResponse,
)
from ottla.controller.raft.state_machine.leader import leader_error
from ottla.controller.raft.state_machine.log_summary import voter_keys
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.codec.schema import ZERO_UUID, Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)

CAUGHT_UP_WITHIN_MS = 3_600_000
"""Maximum time in ms since the last fetch of a new voter, which must also have been caught up once (R-248)."""
MAX_KRAFT_VERSION = 1
"""Newest supported kraft.version."""


def handle_voter_request(
    raft: RaftState, pending: Any, request: AddVoter | RemoveVoter | UpdateVoter | UpgradeKRaftVersion
) -> None:
    """Start a voter change, or apply it at once; add the response to `Ready` unless a commit must come first.

    AddRaftVoter and RemoveRaftVoter are completed in a later step. A node that is not the leader responds with an
    error. ``pending``: object of `RequestReceived` that the response names.
    """
    maybe_complete_change(raft)
    match request:
        case AddVoter():
            answer = _add(raft, pending, request)
        case RemoveVoter():
            answer = _remove(raft, pending, request)
        case UpdateVoter():
            answer = _update(raft, request)
        case UpgradeKRaftVersion():
            answer = _raise(raft, request)
    if answer is not None:
        raft.ready.replies.append(OutboundResponse(pending, answer))


def _response(raft: RaftState, error: ErrorCode, message: str | None = None) -> VoterChangeResponse:
    return VoterChangeResponse(error, raft.epoch, raft.leader_id, message)


def _has_listener(raft: RaftState, endpoints: Iterable[Endpoint]) -> bool:
    return any(e.name.upper() == raft.listener.upper() for e in endpoints)


# ------------------------------------------------------------------ adding and removing of voters


def _request_error(raft: RaftState, request: AddVoter | RemoveVoter) -> VoterChangeResponse | None:
    """Return the error response to AddRaftVoter or RemoveRaftVoter, None if it is valid (the table above R-246)."""
    error = leader_error(raft.epoch, raft.epoch, leads=raft.is_leader)
    if error != ErrorCode.NONE:
        return _response(raft, error)
    name, verb = ("Add", "adding") if isinstance(request, AddVoter) else ("Remove", "removing")
    if request.voter.id < 0 or request.voter.directory_id == ZERO_UUID:
        return _response(raft, ErrorCode.INVALID_REQUEST, f"{name} voter request didn't include a valid voter")
    if isinstance(request, AddVoter) and not _has_listener(raft, request.endpoints):
        message = f"Add voter request didn't include the endpoint for the default listener {raft.listener}"
        return _response(raft, ErrorCode.INVALID_REQUEST, message)
    assert isinstance(raft.state, RaftLeaderState)
    return _precondition_error(raft, raft.state, verb)


def _precondition_error(raft: RaftState, leader: RaftLeaderState, verb: str) -> VoterChangeResponse | None:
    """Return the error response while the leader cannot change the voter set, else None (the table above R-246)."""
    wait = ErrorCode.REQUEST_TIMED_OUT
    if leader.pending_change is not None:
        message = "Request timed out waiting for leader to handle previous voter change request"
        return _response(raft, wait, message)
    if raft.advertised_high_watermark < 0:
        message = "Request timed out waiting for leader to establish HWM and fence previous voter changes"
        return _response(raft, wait, message)
    if raft.voters.kraft_version < 1:
        message = (
            f"Cluster doesn't support {verb} voter because the kraft.version feature is {raft.voters.kraft_version}"
        )
        return _response(raft, ErrorCode.UNSUPPORTED_VERSION, message)
    if raft.voters.offset >= raft.advertised_high_watermark:
        message = (
            f"Request timed out waiting for voters to commit the latest voter change at {raft.voters.offset} "
            f"with HWM {raft.advertised_high_watermark}"
        )
        return _response(raft, wait, message)
    return None


def _add(raft: RaftState, pending: Any, request: AddVoter) -> VoterChangeResponse | None:
    state, voter = raft.state, request.voter
    wrong = _request_error(raft, request)
    if wrong is not None:
        return wrong
    assert isinstance(state, RaftLeaderState)
    if raft.voters.find_voter(voter.id) is not None:
        message = f"The voter id for {_replica_text(voter)} is already part of the set of voters {_voters_text(raft)}."
        return _response(raft, ErrorCode.DUPLICATE_VOTER, message)
    query = QueryKRaftVersions(voter, request.endpoints)
    state.start_change(PendingVoterChange(pending, request, raft.now_ms + raft.timeouts.request_ms, query))
    raft.ready.sends.append(OutboundRequest(voter.id, query))
    return None


def handle_versions_response(raft: RaftState, query: QueryKRaftVersions, answer: KRaftVersionsResponse) -> None:
    """Process the ApiVersions response of the new voter: append a VotersRecord that includes the voter (R-248).

    The change fails with REQUEST_TIMED_OUT if the response is an error or the voter is not caught up, and with
    INVALID_REQUEST if the voter does not support the current kraft.version. Without ``ack_when_committed`` the response
    NONE is added to `Ready` at the append. A response to a query that is not pending any more is ignored.
    """
    change = raft.state.pending_change if isinstance(raft.state, RaftLeaderState) else None
    if change is None or not change.complete_query(query):
        return
    request, level = change.request, raft.voters.kraft_version
    assert isinstance(request, AddVoter)
    if answer.error != ErrorCode.NONE:
        message = f"Aborted add voter operation since API_VERSIONS returned an error {answer.error.name}"
        _complete_change(raft, ErrorCode.REQUEST_TIMED_OUT, message)
    elif not 0 <= answer.min_version <= level <= answer.max_version:
        low, high = max(answer.min_version, 0), max(answer.max_version, 0)  # Kafka takes a missing range as 0 to 0
        message = (
            f"Aborted add voter operation for {_replica_text(request.voter)} since the kraft.version range (min: "
            f"{low}, max: {high}) doesn't support the finalized version {level}"
        )
        _complete_change(raft, ErrorCode.INVALID_REQUEST, message)
    elif not _caught_up(raft, request.voter):
        message = f"Aborted add voter operation for {_replica_text(request.voter)} since it is lagging behind"
        _complete_change(raft, ErrorCode.REQUEST_TIMED_OUT, message)
    else:
        feature = KRaftVersionFeature(answer.min_version, answer.max_version)
        entry = VotersRecordVoter(request.voter.id, request.voter.directory_id, list(request.endpoints), feature)
        change.record_append(_append(raft, [*_entries(raft), entry]))
        if not request.ack_when_committed:
            raft.ready.replies.append(OutboundResponse(change.pop_request(), _response(raft, ErrorCode.NONE)))


def _caught_up(raft: RaftState, voter: ReplicaKey) -> bool:
    assert isinstance(raft.state, RaftLeaderState)
    progress = raft.state.replicas.get(voter, ReplicaProgress())
    return progress.last_caught_up_ms >= 0 and progress.last_fetch_ms > raft.now_ms - CAUGHT_UP_WITHIN_MS


def _remove(raft: RaftState, pending: Any, request: RemoveVoter) -> VoterChangeResponse | None:
    state, entries = raft.state, _entries(raft)
    wrong = _request_error(raft, request)
    if wrong is not None:
        return wrong
    assert isinstance(state, RaftLeaderState)
    left = [e for e in entries if (e.voter_id, e.voter_directory_id) != request.voter]
    if not left or len(left) == len(entries):
        message = f"Cannot remove voter {_replica_text(request.voter)} from the set of voters {_voters_text(raft)}"
        return _response(raft, ErrorCode.VOTER_NOT_FOUND, message)
    change = PendingVoterChange(pending, request, raft.now_ms + raft.timeouts.request_ms)
    state.start_change(change)
    change.record_append(_append(raft, left))
    return None


def _replica_text(voter: ReplicaKey) -> str:
    """Return a replica key in the format of Kafka's ``ReplicaKey.toString``."""
    directory = "<undefined>" if voter.directory_id == ZERO_UUID else uuid_to_string(voter.directory_id)
    return f"ReplicaKey(id={voter.id}, directoryId={directory})"


def _voters_text(raft: RaftState) -> str:
    keys = [ReplicaKey(e.voter_id, e.voter_directory_id) for e in _entries(raft)]
    return f"[{', '.join(map(_replica_text, keys))}]"


# ------------------------------------------------------------------ updates of voters


def _update(raft: RaftState, request: UpdateVoter) -> VoterChangeResponse:
    """Process UpdateRaftVoter (R-249): append a VotersRecord with the voter's new entry; return the response.

    With kraft.version 0 the entry is only stored in the leader's memory. The request counts for the check quorum.
    """
    state, key = raft.state, request.voter
    error = leader_error(request.epoch, raft.epoch, leads=raft.is_leader)
    if error != ErrorCode.NONE:
        return _response(raft, error)
    assert isinstance(state, RaftLeaderState)
    known = key.id >= 0 and key.directory_id != ZERO_UUID and _has_listener(raft, request.endpoints)
    if not known or not 0 <= request.min_version <= request.max_version:
        return _response(raft, ErrorCode.INVALID_REQUEST)
    wrong = _precondition_error(raft, state, "updating")
    if wrong is not None and wrong.error != ErrorCode.UNSUPPORTED_VERSION:
        return wrong._replace(message=None)
    if not request.min_version <= raft.voters.kraft_version <= request.max_version:
        return _response(raft, ErrorCode.INVALID_REQUEST)
    entry = raft.voters.find_voter(key.id)
    if entry is None or (raft.voters.kraft_version >= 1 and not entry.identifies(key)):
        return _response(raft, ErrorCode.VOTER_NOT_FOUND)
    feature = KRaftVersionFeature(request.min_version, request.max_version)
    row = VotersRecordVoter(key.id, key.directory_id, list(request.endpoints), feature)
    if raft.voters.kraft_version < 1:
        state.record_voter_update(row)
    else:
        _append(raft, [row if e.voter_id == key.id else e for e in _entries(raft)])
    fetch_handlers.update_check_quorum(raft, state, key)
    return _response(raft, ErrorCode.NONE)


def _raise(raft: RaftState, request: UpgradeKRaftVersion) -> VoterChangeResponse:
    """Process an upgrade of kraft.version (R-244): append KRaftVersionRecord and VotersRecord; return the response.

    Every voter must have reported support for it. It cannot be lowered. With ``validate_only`` nothing is appended.
    """
    state, level = raft.state, raft.voters.kraft_version
    if not isinstance(state, RaftLeaderState):
        return _response(raft, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if request.level == level:
        return _response(raft, ErrorCode.NONE)
    if not level < request.level <= MAX_KRAFT_VERSION:
        message = f"kraft.version cannot be changed from {level} to {request.level}"
        return _response(raft, ErrorCode.INVALID_UPDATE_VERSION, message)
    reported = [state.voter_updates.get(v.id) for v in raft.voters.current]
    rows = [r for r in reported if r is not None and r.k_raft_version_feature.max_supported_version >= request.level]
    if len(rows) < len(reported):
        message = f"not all voters have reported support of kraft.version {request.level}"
        return _response(raft, ErrorCode.INVALID_UPDATE_VERSION, message)
    if not request.validate_only:
        _append(raft, rows, KRaftVersionRecord(0, request.level))
    return _response(raft, ErrorCode.NONE)


# ------------------------------------------------------------------ VotersRecord in the log


def _entries(raft: RaftState) -> list[VotersRecordVoter]:
    return [] if raft.voters.record is None else raft.voters.record.voters


def _append(raft: RaftState, voters: list[VotersRecordVoter], *before: Message) -> int:
    """Append a VotersRecord, after the records ``before``, in one batch; return the offset of the VotersRecord.

    It is in force at once.
    """
    record = VotersRecord(0, sorted(voters, key=lambda v: v.voter_id))
    controls = (*before, record)
    offset = raft.append(len(controls), controls=controls) + len(before)
    raft.voters.add(offset, voter_keys(record), record)
    assert isinstance(raft.state, RaftLeaderState)
    raft.state.update_voters(raft.voters.current, raft.now_ms + raft.timeouts.check_quorum_ms)
    raft.update_high_watermark()
    return offset


def maybe_complete_change(raft: RaftState) -> None:
    """Complete the pending voter change if it is committed; after its deadline respond REQUEST_TIMED_OUT instead.

    After a timeout its VotersRecord may be committed later all the same.
    """
    change = raft.state.pending_change if isinstance(raft.state, RaftLeaderState) else None
    if change is None:
        return
    if 0 <= change.offset < raft.advertised_high_watermark:
        _complete_change(raft, ErrorCode.NONE)
    elif raft.now_ms >= change.deadline_ms:
        _complete_change(raft, ErrorCode.REQUEST_TIMED_OUT)


def _complete_change(raft: RaftState, error: ErrorCode, message: str | None = None) -> None:
    assert isinstance(raft.state, RaftLeaderState)
    change = raft.state.complete_change()
    request = None if change is None else change.pop_request()
    if request is not None:
        raft.ready.replies.append(OutboundResponse(request, _response(raft, error, message)))


def is_own_removal_committed(raft: RaftState) -> bool:
    """Return True if this node leads and its removal from the voter set is committed: it must resign (R-242)."""
    out = isinstance(raft.state, RaftLeaderState) and not raft.voters.is_voter(raft.local_replica)
    return out and raft.voters.offset < raft.advertised_high_watermark
