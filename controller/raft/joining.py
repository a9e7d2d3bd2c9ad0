"""What a follower tells its leader of itself: where it listens, and that it would like to vote.

Source: ``KafkaRaftClient.pollFollowerAsVoter``, ``.pollFollowerAsObserver`` (apache/kafka 4.3.1).

From KIP-853; joining by itself: KIP-1186.
"""

from __future__ import annotations

from ottla.controller.raft.chain import differs
from ottla.controller.raft.events import AddVoter, Age, RemoveVoter, UpdateVoter, VoterAnswer
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import Follower
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import VotersRecordVoter

_WAITS = {
    AddVoter: (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.DUPLICATE_VOTER),
    RemoveVoter: (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND),
}
"""Answers after which nothing more is said until the next turn."""


def offer(raft: RaftNode) -> AddVoter | RemoveVoter | UpdateVoter | None:
    """What the leader is told instead of the next fetch; a turn comes once per fetch timeout (R249, R250)."""
    state, entry = raft.state, raft.entry
    assert isinstance(state, Follower)
    if entry is None or raft.hard.age != Age.GROWN or raft.now_ms < state.offer_ms:
        return None
    out: AddVoter | RemoveVoter | UpdateVoter | None = None
    if raft.voters.has(raft.me):
        if _is_news(raft, state, entry):
            feature = entry.k_raft_version_feature
            versions = (feature.min_supported_version, feature.max_supported_version)
            out = UpdateVoter(raft.me, raft.epoch, tuple(entry.endpoints), *versions)
    elif raft.auto_join and raft.voters.kraft_version >= 1:
        before = raft.voters.find(raft.me.id)
        joins = AddVoter(raft.me, tuple(entry.endpoints), ack_when_committed=False)
        out = joins if before is None else RemoveVoter(before)
    state.offer_ms = raft.now_ms + raft.timeouts.fetch_ms
    return out


def _is_news(raft: RaftNode, state: Follower, entry: VotersRecordVoter) -> bool:
    record = raft.voters.record
    if record is None:
        return not state.told_leader
    return differs(record.voters, entry)


def answered(raft: RaftNode, request: AddVoter | RemoveVoter | UpdateVoter, answer: VoterAnswer) -> bool:
    """Take the leader's answer; says whether it was one that the leader can be asked something else after."""
    state = raft.state
    if not isinstance(state, Follower):
        return True
    if not isinstance(request, UpdateVoter):
        return answer.error in _WAITS[type(request)]
    if request.epoch != raft.epoch or answer.epoch != raft.epoch:
        return False
    if answer.error not in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION):
        return False
    state.told_leader = True
    raft.heard_leader()
    return True
