"""Host of a Raft state machine: its disk, and the part of it that survives a crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.controller.raft.state_machine.events import HardState, ReplicaKey, VoterState
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory, voter_keys
from ottla.controller.raft.state_machine.raft_state_machine import RaftStateMachine
from ottla.wire.messages.control_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)


class LogEntry(NamedTuple):
    """A record of the log."""

    epoch: int
    value: Any


class SimulatedLog:
    """Records from ``start`` on."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._entries: list[LogEntry] = []

    @property
    def end_offset(self) -> int:
        return self.start + len(self._entries)

    def __getitem__(self, offset: int) -> LogEntry:
        assert offset >= self.start
        return self._entries[offset - self.start]

    def append(self, entries: Sequence[LogEntry]) -> None:
        self._entries += entries

    def truncate(self, end: int) -> None:
        del self._entries[max(end - self.start, 0) :]

    def drop_below(self, start: int) -> None:
        del self._entries[: start - self.start]
        self.start = start

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, its first offset), oldest first."""
        out: list[tuple[int, int]] = []
        for offset in range(self.start, self.end_offset):
            if not out or out[-1][0] != self[offset].epoch:
                out.append((self[offset].epoch, offset))
        return out


class SimulatedHost:
    """Host; ``machine`` is None while it is stopped."""

    def __init__(self, number: int) -> None:
        self.wipe_count = 0
        self.key = ReplicaKey(number, bytes([number] * 16))
        self.hard_state = HardState(0)
        self.log = SimulatedLog()
        self.snapshots: list[tuple[int, int]] = []
        self.flushed_offset = 0
        self.machine: RaftStateMachine | None = None
        self.deadline_ms = 0.0
        """Next time at which the machine has work."""
        self.incarnation = 0
        self.committed = -1
        self.initial_keys: list[ReplicaKey] = []
        """Voters of the configuration."""
        self.initial_voters_record: VotersRecord | None = None
        """Voters that the disk was formatted with."""
        self.auto_join = False
        self.has_static_voters = False
        """Voters are static: on an empty disk the voter is newborn."""

    @property
    def voter_entry(self) -> VotersRecordVoter:
        """Return the entry of the host in the voters record."""
        endpoints = [Endpoint("CONTROLLER", f"host{self.key.id}", 9093)]
        return VotersRecordVoter(*self.key, endpoints, KRaftVersionFeature(0, 1))

    # ------------------------------------------------------------------ processes

    def open(self, committed: list[LogEntry], rng: Callable[[], float], others: tuple[int, ...]) -> None:
        """Start a new incarnation from the state on the disk."""
        self.incarnation += 1
        if self.snapshots and self.log.end_offset < self.snapshots[-1][0]:
            self.log = SimulatedLog(self.snapshots[-1][0])
        self.flushed_offset = self.log.end_offset
        chain = LogSummary(self.log.end_offset, self.log.epochs(), self.log.start, self.snapshots)
        first = (
            ()
            if self.initial_voters_record is None or self.log.end_offset > 0
            else (KRaftVersionRecord(0, 1), self.initial_voters_record)
        )
        self.machine = RaftStateMachine(
            self.key,
            self._voters(committed),
            self.hard_state,
            chain,
            rng,
            first_records=first,
            bootstrap=others,
            entry=self.voter_entry,
            auto_join=self.auto_join,
        )
        self.committed = -1

    def _voters(self, committed: list[LogEntry]) -> VoterSetHistory:
        below = self.snapshots[-1][0] if self.snapshots else 0
        record = self.voters_below(below, committed)
        out = VoterSetHistory(voter_keys(record) if record else self.initial_keys, record, below - 1)
        for offset in range(max(self.log.start, below), self.log.end_offset):
            value = self.log[offset].value
            if isinstance(value, VotersRecord):
                out.add(offset, voter_keys(value), value)
        return out

    def voters_below(self, end: int, committed: list[LogEntry]) -> VotersRecord | None:
        """Return the voters of a snapshot that ends at an offset."""
        records = [x.value for x in committed[:end] if isinstance(x.value, VotersRecord)]
        return records[-1] if records else self.initial_voters_record

    def crash(self, rng: random.Random) -> None:
        """Stop with a loss of unsynced data."""
        self.machine = None
        if self.log.end_offset > self.flushed_offset:
            self.flushed_offset = rng.randint(self.flushed_offset, self.log.end_offset)
            self.log.truncate(self.flushed_offset)

    def wipe(self) -> None:
        """Replace the disk by an empty one, formatted without voters."""
        self.machine = None
        self.wipe_count += 1
        self.key = ReplicaKey(self.key.id, bytes([self.key.id] * 8 + [self.wipe_count] * 8))
        self.format()
        self.initial_voters_record = None

    def format(self) -> None:
        """Format the empty disk."""
        age = VoterState.EMPTY_LOG if self.has_static_voters else VoterState.NORMAL
        self.hard_state, self.log, self.snapshots, self.flushed_offset = (
            HardState(0, voter_state=age),
            SimulatedLog(),
            [],
            0,
        )

    # ------------------------------------------------------------------ disk

    def append(self, first_offset: int, entries: list[LogEntry]) -> None:
        assert first_offset == self.log.end_offset
        self.log.append(entries)

    def truncate(self, offset: int) -> None:
        assert offset >= self.committed, "committed records must not be truncated"
        self.log.truncate(offset)
        self.flushed_offset = min(self.flushed_offset, offset)

    def truncate_to_snapshot(self, snapshot: tuple[int, int]) -> None:
        """Replace the log by a snapshot."""
        self.log = SimulatedLog(snapshot[0])
        self.flushed_offset = snapshot[0]
        self.snapshots = [snapshot]
        self.committed = max(self.committed, snapshot[0])

    def write_snapshot(self) -> None:
        """Write a snapshot of all committed records; remove the log below the previous one."""
        end = self.committed
        self.snapshots.append((end, self.log[end - 1].epoch))
        if len(self.snapshots) > 2:
            del self.snapshots[0]
        self.log.drop_below(self.snapshots[0][0])

    def has_entry(self, offset: int, entry: LogEntry) -> bool:
        """Return True if a record is on the disk, in the log or in a snapshot."""
        if offset < self.log.start:
            return True
        return offset < self.flushed_offset and self.log[offset].epoch == entry.epoch
