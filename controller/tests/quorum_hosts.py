"""A host of a raft machine: what lies on its disk, and what of it a crash leaves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.controller.raft.chain import EpochChain, VoterHistory, voter_keys
from ottla.controller.raft.events import Age, HardState, ReplicaKey
from ottla.controller.raft.machine import RaftMachine
from ottla.wire.messages import control_records as ctl


class Entry(NamedTuple):
    """A record of the log."""

    epoch: int
    what: Any


class Log:
    """Records from ``start`` on."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self._entries: list[Entry] = []

    @property
    def end(self) -> int:
        return self.start + len(self._entries)

    def __getitem__(self, offset: int) -> Entry:
        assert offset >= self.start
        return self._entries[offset - self.start]

    def append(self, entries: Sequence[Entry]) -> None:
        self._entries += entries

    def cut(self, end: int) -> None:
        del self._entries[max(end - self.start, 0) :]

    def drop_below(self, start: int) -> None:
        del self._entries[: start - self.start]
        self.start = start

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, its first offset), oldest first."""
        out: list[tuple[int, int]] = []
        for offset in range(self.start, self.end):
            if not out or out[-1][0] != self[offset].epoch:
                out.append((self[offset].epoch, offset))
        return out


class Host:
    """One host; ``machine`` is None while it is dead."""

    def __init__(self, number: int) -> None:
        self.wiped = 0
        self.key = ReplicaKey(number, bytes([number] * 16))
        self.hard = HardState(0)
        self.log = Log()
        self.snapshots: list[tuple[int, int]] = []
        self.synced = 0
        self.machine: RaftMachine | None = None
        self.deadline_ms = 0.0
        """When the machine wants to be asked again."""
        self.life = 0
        self.committed = -1
        self.first_keys: list[ReplicaKey] = []
        """The voters that the settings name."""
        self.first_record: ctl.VotersRecord | None = None
        """The voters that the disk was formatted with."""
        self.auto_join = False
        self.is_fixed = False
        """It votes by configuration: on an empty disk it is newborn."""

    @property
    def entry(self) -> ctl.VotersRecordVoter:
        """It as it stands among the voters."""
        places = [ctl.Endpoint("CONTROLLER", f"host{self.key.id}", 9093)]
        return ctl.VotersRecordVoter(*self.key, places, ctl.KRaftVersionFeature(0, 1))

    # ------------------------------------------------------------------ lives

    def open(self, committed: list[Entry], chance: Callable[[], float], others: tuple[int, ...]) -> None:
        """A new life, from what lies on the disk."""
        self.life += 1
        if self.snapshots and self.log.end < self.snapshots[-1][0]:
            self.log = Log(self.snapshots[-1][0])
        self.synced = self.log.end
        chain = EpochChain(self.log.end, self.log.epochs(), self.log.start, self.snapshots)
        first = (
            () if self.first_record is None or self.log.end > 0 else (ctl.KRaftVersionRecord(0, 1), self.first_record)
        )
        self.machine = RaftMachine(
            self.key,
            self._voters(committed),
            self.hard,
            chain,
            chance,
            first_records=first,
            bootstrap=others,
            entry=self.entry,
            auto_join=self.auto_join,
        )
        self.committed = -1

    def _voters(self, committed: list[Entry]) -> VoterHistory:
        below = self.snapshots[-1][0] if self.snapshots else 0
        record = self.voters_below(below, committed)
        out = VoterHistory(voter_keys(record) if record else self.first_keys, record, below - 1)
        for offset in range(max(self.log.start, below), self.log.end):
            what = self.log[offset].what
            if isinstance(what, ctl.VotersRecord):
                out.add(offset, voter_keys(what), what)
        return out

    def voters_below(self, end: int, committed: list[Entry]) -> ctl.VotersRecord | None:
        """The voters as a snapshot that ends there says them."""
        records = [x.what for x in committed[:end] if isinstance(x.what, ctl.VotersRecord)]
        return records[-1] if records else self.first_record

    def crash(self, chance: random.Random) -> None:
        """What was not synced may be lost."""
        self.machine = None
        if self.log.end > self.synced:
            self.synced = chance.randint(self.synced, self.log.end)
            self.log.cut(self.synced)

    def wipe(self) -> None:
        """An empty disk, formatted without voters."""
        self.machine = None
        self.wiped += 1
        self.key = ReplicaKey(self.key.id, bytes([self.key.id] * 8 + [self.wiped] * 8))
        self.format()
        self.first_record = None

    def format(self) -> None:
        """Nothing is here."""
        age = Age.NEWBORN if self.is_fixed else Age.GROWN
        self.hard, self.log, self.snapshots, self.synced = HardState(0, age=age), Log(), [], 0

    # ------------------------------------------------------------------ disk

    def append(self, first_offset: int, entries: list[Entry]) -> None:
        assert first_offset == self.log.end
        self.log.append(entries)

    def truncate(self, offset: int) -> None:
        assert offset >= self.committed, "what is committed is never cut"
        self.log.cut(offset)
        self.synced = min(self.synced, offset)

    def start_over(self, snapshot: tuple[int, int]) -> None:
        """A snapshot took the log's place."""
        self.log = Log(snapshot[0])
        self.synced = snapshot[0]
        self.snapshots = [snapshot]
        self.committed = max(self.committed, snapshot[0])

    def take_snapshot(self) -> None:
        """Write one of everything that is known to be committed here; the log below the one before it goes."""
        end = self.committed
        self.snapshots.append((end, self.log[end - 1].epoch))
        if len(self.snapshots) > 2:
            del self.snapshots[0]
        self.log.drop_below(self.snapshots[0][0])

    def holds(self, offset: int, entry: Entry) -> bool:
        """Whether a record is on the disk here, in the log or in a snapshot."""
        if offset < self.log.start:
            return True
        return offset < self.synced and self.log[offset].epoch == entry.epoch
