"""The raft machine: ``step(now, event) -> Ready``. It knows no file, no socket, no clock and no chance of its own.

One voter or many is the same machine: a lone voter is a majority by itself, so that `Start` makes it leader at once.
What a step wants done is done in the order `Ready` gives before the next step is taken. What is appended counts for
this node's own voice once it is on its disk (`Synced`), which is stricter than Kafka (R227).

Source: ``KafkaRaftClient.java`` (apache/kafka 4.3.1; KIP-595, 853, 996, 1166).
"""

from __future__ import annotations

from ottla.controller.raft import elections, events
from ottla.controller.raft.chain import VoterHistory, voter_keys
from ottla.controller.raft.events import Event, Ready
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.states import Follower, Leader, Unattached


class RaftMachine(RaftNode):
    """A raft node and the rules that drive it."""

    def step(self, now_ms: float, event: Event) -> Ready:
        """Take one event in; gives what must be done before the next one."""
        self.now_ms = now_ms
        self.ready = Ready()
        before = self.hard
        match event:
            case events.Start():
                elections.start(self)
            case events.Tick():
                elections.tick(self)
            case events.Propose(batch, count):
                assert self.is_leader, "only a leader appends"
                self.append(count, batch=batch)
            case events.Synced(end):
                self._synced(end)
            case events.Asked() | events.Answered() | events.Refused() | events.Unreachable():
                from ottla.controller.raft import answers  # a node alone does without

                answers.take(self, event)
            case events.Gone(peer):
                elections.leader_gone(self, peer)
            case events.SnapshotPart():
                self._heard()
            case events.SnapshotLoaded():
                self._loaded(event)
            case events.Covered(start, snapshots):
                self.chain.covered(start, snapshots)
            case events.Resign():
                elections.resign(self)
        if isinstance(self.state, Leader) and (self.state.change is not None or not self.voters.has(self.me)):
            from ottla.controller.raft import voter_changes

            voter_changes.settle(self)
            if voter_changes.is_removed(self):
                elections.resign(self)
        elections.ask_around(self)
        if isinstance(self.state, Follower | Unattached):
            from ottla.controller.raft import following

            following.fetch_more(self)
        if self.hard != before:
            self.ready.hard_state = self.hard
        if self.hard.age != before.age:
            from ottla.controller.raft import newborn

            newborn.tell(self, before.age)
        return self.ready

    def _synced(self, end: int) -> None:
        self.synced = max(self.synced, min(end, self.chain.end))
        if isinstance(self.state, Leader):
            self.count_own_end()

    def _heard(self) -> None:
        if self.loading is not None:
            self.heard_leader()

    def _loaded(self, event: events.SnapshotLoaded) -> None:
        """A snapshot replaces the log, unless it was asked for in a state that is over (R235)."""
        if self.loading != (event.end_offset, event.epoch):
            return
        assert isinstance(self.state, Follower)
        self.ready.start_over, self.loading = self.loading, None
        self.chain.start_over(event.end_offset, event.epoch)
        self.synced = event.end_offset
        self.high_watermark = max(self.high_watermark, event.end_offset)
        if event.voters is not None:
            self.voters = VoterHistory(voter_keys(event.voters), event.voters, event.end_offset - 1)
