"""Bugs planted in the quorum: each breaks one rule of raft, of its store or of a snapshot by replacing one function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.controller import snapshot_generator
from ottla.controller.raft.driver.raft_driver import RaftDriver
from ottla.controller.raft.state_machine import elections, events, rpc_handlers, vote_rules, voter_changes
from ottla.controller.raft.state_machine.epoch_states import (
    CandidateState,
    EpochElection,
    ProspectiveState,
    RaftLeaderState,
)
from ottla.controller.raft.state_machine.events import HardState, ReplicaKey
from ottla.controller.raft.state_machine.leader import majority_end_offset
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.controller.raft.store.quorum_state_file import QuorumStateFile
from sim.tests.seeded_faults.seeding import patch


def vote_before_fsync() -> None:
    """A vote is sent before it is on disk; it never gets there."""
    patch(
        MetadataStore,
        "prepare_state_write",
        lambda real: lambda self, hard, voters: (real(self, hard, voters), lambda: None)[1],
    )


def count_unflushed_records() -> None:
    """A voter reports records that it has not synced."""

    def sync(self: RaftDriver) -> None:
        end = self._store.log.log_end_offset
        if end > self.machine.flushed_offset:
            self.enqueue(events.LogFlushed(end))

    RaftDriver._maybe_flush = sync  # type: ignore[method-assign]


def vote_for_shorter_log() -> None:
    """The log end of a candidate is not compared."""

    def make(real: Any) -> Any:
        return lambda state, hard, vote, last_epoch, end: real(state, hard, vote, -1, -1)

    patch(rpc_handlers, "can_grant_vote", make)


def vote_twice() -> None:
    """A granted vote is forgotten at once."""
    vote_rules._can_grant_standard_vote = lambda hard, candidate, *, up_to_date: up_to_date


def commit_without_majority() -> None:
    """All records of the leader count as committed."""
    patch(RaftState, "raise_high_watermark", lambda real: lambda self, _: real(self, self.log_summary.end_offset))


def accept_half_as_majority() -> None:
    """Two of four voters are a majority, and one of three."""
    VoterSetHistory.majority_size = property(lambda self: max(len(self.current) // 2, 1))  # type: ignore[assignment,method-assign]


def forget_votes_at_a_start() -> None:
    """The vote in the quorum-state file is not read."""

    def make(real: Any) -> Any:
        def read(disk: Any, path: str) -> QuorumStateFile:
            found: QuorumStateFile = real(disk, path)
            found.hard_state = HardState(found.hard_state.epoch, found.hard_state.leader_id)
            return found

        return staticmethod(read)

    patch(QuorumStateFile, "read", make)


def read_no_quorum_state() -> None:
    """A node starts with the epoch of its last record."""
    QuorumStateFile.read = staticmethod(lambda *_: QuorumStateFile())  # type: ignore[assignment]


def skip_divergence_check() -> None:
    """The log of a fetching voter is not checked for divergence."""
    patch(
        LogSummary,
        "validate_offset_and_epoch",
        lambda _: lambda self, offset, last_epoch: ("valid", (last_epoch, offset)),
    )


def commit_older_epochs() -> None:
    """Records of older epochs are committed by a majority without a record of the leader's own epoch."""

    def commit(self: RaftState) -> None:
        assert isinstance(self.state, RaftLeaderState)
        self.raise_high_watermark(majority_end_offset(self.state, self.voters))

    RaftState.update_high_watermark = commit  # type: ignore[method-assign]


def count_pre_votes_as_votes() -> None:
    """A granted pre-vote counts as a vote."""

    def stand(raft: RaftState) -> None:
        assert isinstance(raft.state, ProspectiveState)
        chosen = CandidateState(raft.random_election_deadline_ms(), EpochElection(dict(raft.state.election.votes)))
        raft.transition_to(chosen, HardState(raft.epoch + 1, -1, raft.local_replica))
        elections.evaluate_votes(raft)

    elections.transition_to_candidate = stand


def leave_the_last_out_of_snapshots() -> None:
    """A snapshot lacks one record."""

    def make(real: Any) -> Any:
        def reported_slowly(image: Any) -> Iterator[Any]:
            return iter(list(real(image))[:-1])

        return reported_slowly

    patch(snapshot_generator, "image_records_yielding", make)


def ignore_directory_id() -> None:
    """A voter with a wiped disk votes with its old voter key."""
    ReplicaKey.identifies = lambda self, replica: self.id == replica.id  # type: ignore[method-assign]


def vote_with_empty_log() -> None:
    """A static voter votes with an empty disk as if it had never had another."""
    MetadataStore.initial_hard_state = lambda self, quorum: self.persisted_hard_state  # type: ignore[method-assign]


def change_voters_concurrently() -> None:
    """A change of the voters begins before the last one is committed."""
    voter_changes._precondition_error = lambda *_: None
