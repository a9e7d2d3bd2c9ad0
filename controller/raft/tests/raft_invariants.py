"""Invariants of a quorum, checked after each step."""

from __future__ import annotations

from typing import Any

from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    AnyRaftResponse,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchSnapshot,
    HardState,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RaftRequest,
    UpdateVoter,
    Vote,
)
from ottla.controller.raft.tests.simulated_hosts import LogEntry, SimulatedHost
from ottla.wire.errors import ErrorCode

EXPECTED_ERRORS = {
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.VOTER_NOT_FOUND,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Errors that do not stop a JVM peer; INVALID_REQUEST (R-254) and CLUSTER_AUTHORIZATION_FAILED (R-255) stop it."""


class RaftInvariants:
    """Invariants by the names that Kafka uses."""

    def __init__(self, hosts: dict[int, SimulatedHost]) -> None:
        self._hosts = hosts
        self.committed: list[LogEntry] = []
        self.leaders: dict[int, int] = {}
        self._promised_offsets: dict[tuple[int, int], tuple[int, int]] = {}
        """(replica, its incarnation) -> last returned (epoch, high watermark)."""
        self.checks_majority = True
        """False once a disk of the majority was lost."""

    def on_hard_state(self, host: SimulatedHost, hard: HardState) -> None:
        """MonotonicEpoch, OneVotePerEpoch; ``hard`` is persisted after the call."""
        before = host.hard_state
        assert hard.epoch >= before.epoch, "MonotonicEpoch"
        same = hard.epoch == before.epoch
        if same and before.voted_key is not None and hard.voted_key is not None:
            assert hard.voted_key == before.voted_key, "OneVotePerEpoch"
        if same and before.leader_id >= 0:
            assert hard.leader_id in (-1, before.leader_id), "SingleLeaderPerEpoch"
        host.hard_state = hard

    def check_host(self, host: SimulatedHost) -> None:
        """SingleLeaderPerEpoch, LeaderCompleteness, MonotonicHighWatermark."""
        machine = host.machine
        assert machine is not None
        assert machine.high_watermark == host.committed, "MonotonicHighWatermark"
        if not machine.is_leader:
            return
        if machine.epoch not in self.leaders:
            self.leaders[machine.epoch] = host.key.id
            last = len(self.committed) - 1
            if last >= host.log.start:
                assert last < host.log.end_offset, "LeaderCompleteness: the new leader lacks committed records"
                assert host.log[last].epoch == self.committed[last].epoch, "LeaderCompleteness"
        assert self.leaders[machine.epoch] == host.key.id, f"SingleLeaderPerEpoch: two leaders in {machine.epoch}"

    def on_commit(self, host: SimulatedHost, end: int) -> None:
        """MonotonicHighWatermark, CommittedNeverLost, MajorityReachedHighWatermark."""
        assert end > host.committed, "MonotonicHighWatermark"
        assert end <= host.log.end_offset
        for offset in range(max(host.committed, host.log.start), min(end, len(self.committed))):
            assert host.log[offset] == self.committed[offset], "CommittedNeverLost: a committed record changed"
        host.committed = end
        if end > len(self.committed):
            self.committed += [host.log[offset] for offset in range(len(self.committed), end)]
            self._majority(host, end)

    def _majority(self, host: SimulatedHost, end: int) -> None:
        assert host.machine is not None
        voters = host.machine.voters
        last = self.committed[end - 1]
        holding = [
            v
            for v in voters.current
            if v.identifies(self._hosts[v.id].key) and self._hosts[v.id].has_entry(end - 1, last)
        ]
        reached = len(holding) >= voters.majority_size
        assert reached or not self.checks_majority, f"MajorityReachedHighWatermark: {end} is on {holding} only"

    # ------------------------------------------------------------------ responses that stop a JVM peer

    def on_response(self, host: SimulatedHost, pending: Any, answer: AnyRaftResponse) -> None:
        """Check a response before it is sent."""
        if not isinstance(pending, tuple):
            return
        asker, incarnation, request = pending
        if isinstance(request, Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | UpdateVoter):
            assert answer.error in EXPECTED_ERRORS, f"R-254, R-255: {answer.error.name} to {request}"
            self._check_named_leader(host, asker, request, answer)
        if isinstance(answer, RaftFetchResponse):
            assert isinstance(request, Fetch)
            self._check_fetch_response((asker, incarnation), request, answer)
        if isinstance(answer, RaftFetchSnapshotResponse) and answer.error == ErrorCode.NONE:
            assert isinstance(request, FetchSnapshot)
            assert (answer.snapshot, answer.position) == (request.snapshot, request.position), "R-260"

    def _check_named_leader(
        self, host: SimulatedHost, asker: int, request: RaftRequest, answer: AnyRaftResponse
    ) -> None:
        leader = answer.leader_id
        if leader == NO_NODE_ID:
            return
        machine = host.machine
        assert machine is not None
        assert leader == host.key.id or machine.can_reach(leader), f"R-256: {leader} is named without an address"
        assert self.leaders.get(answer.epoch, leader) == leader, f"R-257: {leader} does not lead {answer.epoch}"
        without_replica_id = isinstance(request, Fetch | FetchSnapshot) and request.replica.id < 0  # no JVM does
        if isinstance(request, Vote | Fetch | FetchSnapshot) and not without_replica_id:
            assert leader != asker, f"R-257: the response to {asker} names it as leader"

    def _check_fetch_response(self, asker: tuple[int, int], request: Fetch, answer: RaftFetchResponse) -> None:
        if answer.high_watermark >= 0:
            epoch, high_watermark = self._promised_offsets.get(asker, (0, -1))
            if answer.epoch >= epoch:
                assert answer.high_watermark >= high_watermark, "R-258: a high watermark that goes back"
                self._promised_offsets[asker] = (answer.epoch, answer.high_watermark)
        if answer.diverging is not None:
            assert answer.diverging[1] >= request.high_watermark, "R-259: cut below the high watermark"
