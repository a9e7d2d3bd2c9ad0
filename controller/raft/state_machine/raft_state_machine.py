"""Raft state machine: ``step(now, event) -> Ready``, without files, sockets, clock or random generator of its own.

A single voter is not a special case: it is a majority by itself, so that `RaftStarted` makes it leader at once. The
driver executes the actions of a step in the order of `Ready` before the next step. The leader's own records count for
the high watermark once they are flushed (`LogFlushed`), which is stricter than Kafka (R-227).

Source: ``KafkaRaftClient.java`` (apache/kafka 4.3.1; KIP-595, 853, 996, 1166).
"""

from __future__ import annotations

from ottla.controller.raft.state_machine import elections, events
from ottla.controller.raft.state_machine.epoch_states import RaftFollowerState, RaftLeaderState, UnattachedState
from ottla.controller.raft.state_machine.events import RaftEvent, Ready
from ottla.controller.raft.state_machine.log_summary import VoterSetHistory, voter_keys
from ottla.controller.raft.state_machine.raft_state import RaftState


class RaftStateMachine(RaftState):
    """State of a Raft node with the rules that change it."""

    def step(self, now_ms: float, event: RaftEvent) -> Ready:
        """Process an event at monotonic time ``now_ms``; return the actions to execute before the next step.

        The state changes at once, as if the actions had been executed.
        """
        self.now_ms = now_ms
        self.ready = Ready()
        before = self.hard_state
        match event:
            case events.RaftStarted():
                elections.initialize(self)
            case events.Tick():
                elections.tick(self)
            case events.Propose(batch, count):
                assert self.is_leader, "only a leader appends"
                self.append(count, batch=batch)
            case events.LogFlushed(end):
                self._log_flushed(end)
            case (
                events.RequestReceived() | events.ResponseReceived() | events.RequestRejected() | events.RequestFailed()
            ):
                # lazy: 2.3 ms, 118 kB: only in a quorum of several controllers
                from ottla.controller.raft.state_machine import rpc_handlers

                rpc_handlers.handle_event(self, event)
            case events.PeerConnectionRefused(peer):
                elections.handle_leader_refused(self, peer)
            case events.SnapshotChunkReceived():
                self._defer_fetch_timeout()
            case events.SnapshotLoaded():
                self._snapshot_loaded(event)
            case events.SnapshotCreated(start, snapshots):
                self.log_summary.advance_start(start, snapshots)
            case events.Resign():
                elections.transition_to_resigned(self)
        if isinstance(self.state, RaftLeaderState) and (
            self.state.pending_change is not None or not self.voters.is_voter(self.local_replica)
        ):
            # lazy: 1.0 ms, 44 kB
            from ottla.controller.raft.state_machine import voter_changes

            voter_changes.maybe_complete_change(self)
            if voter_changes.is_own_removal_committed(self):
                elections.transition_to_resigned(self)
        elections.send_pending_requests(self)
        if isinstance(self.state, RaftFollowerState | UnattachedState):
            # lazy: 1.2 ms, 39 kB
            from ottla.controller.raft.state_machine import follower_fetch

            follower_fetch.maybe_send_fetch(self)
        if self.hard_state != before:
            self.ready.hard_state = self.hard_state
        if self.hard_state.voter_state != before.voter_state:
            # lazy: 0.7 ms, 16 kB
            from ottla.controller.raft.state_machine import lost_disk

            lost_disk.report_state_change(self, before.voter_state)
        return self.ready

    def _log_flushed(self, end: int) -> None:
        self.flushed_offset = max(self.flushed_offset, min(end, self.log_summary.end_offset))
        if isinstance(self.state, RaftLeaderState):
            self.update_local_end_offset()

    def _defer_fetch_timeout(self) -> None:
        if self.requests.loading_snapshot is not None:
            self.reset_fetch_timeout()

    def _snapshot_loaded(self, event: events.SnapshotLoaded) -> None:
        """Replace the log by a downloaded snapshot, unless its download was cancelled meanwhile (R-235).

        The high watermark rises to the snapshot's end offset, and its voters, if any, replace the voter history.
        """
        snapshot = (event.end_offset, event.epoch)
        if self.requests.loading_snapshot != snapshot:
            return
        assert isinstance(self.state, RaftFollowerState)
        self.requests.complete_snapshot()
        self.ready.truncate_to_snapshot = snapshot
        self.log_summary.truncate_to_snapshot(event.end_offset, event.epoch)
        self.flushed_offset = event.end_offset
        self.high_watermark = max(self.high_watermark, event.end_offset)
        if event.voters is not None:
            self.voters = VoterSetHistory(voter_keys(event.voters), event.voters, event.end_offset - 1)
