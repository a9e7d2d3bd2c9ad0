"""What was promised to the clients, and whether it was kept. Each broken promise has a name.

``lost``: an acknowledged record is gone (after a power cut only those that had been synced must be there).
``duplicate``: a record stands twice. ``disorder``: a producer's records stand in another order than sent.
``hole``: offsets do not count up by one. ``ghost``: a record nobody sent. ``offset-back``: a committed position went
back. ``OneOwnerPerPartitionPerGeneration``: two members of a group were given the same. ``CommitOfNobody``: a member of
a generation that was over committed. ``bad-crc``: bytes with a bad checksum were served. ``out-of-order``: a producer
was refused though nothing was lost. ``no-start``: the node could not start on what it had left behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.wire.record_batch.records import Record

LedgerPartition = tuple[str, int]
"""Topic and partition."""


@dataclass(slots=True)
class DeliveryChecker:
    """The checker's book."""

    sent_values: dict[LedgerPartition, dict[int, None]] = field(default_factory=dict)
    acknowledged_offsets: dict[LedgerPartition, dict[int, int]] = field(default_factory=dict)
    """Place -> value -> offset, of what must be there."""
    power_cuts: int = 0
    generation: int = 0
    """The newest that a member of the group was let into."""
    violations: list[tuple[str, str]] = field(default_factory=list)
    committed_to: dict[LedgerPartition, int] = field(default_factory=dict)
    attempted_commits: dict[LedgerPartition, int] = field(default_factory=dict)
    synced_to: dict[LedgerPartition, int] = field(default_factory=dict)
    acknowledged_count: int = 0
    commits: int = 0
    excused_violations: int = 0
    on_power_cut: list[Callable[[], None]] = field(default_factory=list)
    key_of: dict[int, bytes] = field(default_factory=dict)
    """Value -> key, in topics that are compacted."""
    owners: dict[tuple[LedgerPartition, int], str] = field(default_factory=dict)
    """Partition and generation -> the member it was dealt to."""

    def report_violation(self, name: str, detail: str) -> None:
        """A promise was broken."""
        self.violations.append((name, detail))

    def record_sent(self, place: LedgerPartition, values: list[int]) -> None:
        """These are on their way."""
        self.sent_values.setdefault(place, {}).update(dict.fromkeys(values))

    def record_acknowledged(self, place: LedgerPartition, values: list[int], offset: int, cuts: int) -> None:
        """These must be there from now on; ``cuts``: how many power cuts there had been when they were sent.

        An answer that was still on its way when the power went speaks for what may be gone.
        """
        if cuts != self.power_cuts:
            return
        book = self.acknowledged_offsets.setdefault(place, {})
        for index, value in enumerate(values):
            book[value] = offset + index
            self.acknowledged_count += 1

    def report_out_of_order(self, place: LedgerPartition) -> None:
        """A producer's batch was refused for its sequence: only a power cut excuses that."""
        if not self.power_cuts:
            self.report_violation("out-of-order", f"{place[0]}-{place[1]}")

    def report_out_of_range(self, place: LedgerPartition, offset: int) -> None:
        """A reader stands behind the end: only a power cut excuses that."""
        if not self.power_cuts:
            self.report_violation("lost", f"{place[0]}-{place[1]} ends before {offset}")

    def record_commit_attempt(self, place: LedgerPartition, offset: int) -> None:
        """A position is on its way; it may arrive even if the answer does not."""
        self.attempted_commits[place] = max(self.attempted_commits.get(place, 0), offset)

    def record_commit(self, place: LedgerPartition, offset: int, cuts: int) -> None:
        """A position was acknowledged; ``cuts`` as in `record_acknowledged`."""
        self.commits += 1
        if cuts != self.power_cuts:
            return
        self.committed_to[place] = max(self.committed_to.get(place, 0), offset)

    def verify_committed_offset(self, place: LedgerPartition, offset: int, asked_at: int) -> None:
        """A position was read back; ``asked_at``: what was acknowledged when it was asked: answers may be old."""
        least = min(asked_at, self.committed_to.get(place, 0))
        if offset < least:
            self.report_violation("offset-back", f"{place[0]}-{place[1]}: {offset} < {least}")
        if offset > self.attempted_commits.get(place, 0):
            self.report_violation("ghost", f"{place[0]}-{place[1]}: position {offset} was never committed")

    def record_generation(self, generation: int, cuts: int) -> None:
        """A member was told what it has in a generation: the one before is over. ``cuts``: of when it asked."""
        if cuts == self.power_cuts:
            self.generation = max(self.generation, generation)

    def verify_commit_generation(self, generation: int, newest: int, cuts: int) -> None:
        """A member's position was taken; ``newest``, ``cuts``: of when it was sent."""
        if generation < newest and cuts == self.power_cuts:
            self.report_violation("CommitOfNobody", f"a member of generation {generation} after {newest} had begun")

    def record_assignment(self, place: LedgerPartition, generation: int, member: str) -> None:
        """A member was told that a partition is its own in a generation: nobody else is."""
        owner = self.owners.setdefault((place, generation), member)
        if owner != member and not self.power_cuts:
            self.report_violation(
                "OneOwnerPerPartitionPerGeneration",
                f"{place[0]}-{place[1]} in generation {generation}: {owner} and {member}",
            )

    def record_power_cut(self, synced: dict[LedgerPartition, int]) -> None:
        """The machine lost power: what was not synced need not be there any more, and positions may go back."""
        self.power_cuts += 1
        for place, offset in synced.items():
            self.synced_to[place] = max(self.synced_to.get(place, 0), offset)
        for place, book in self.acknowledged_offsets.items():
            limit = self.synced_to.get(place, 0)
            for value in [v for v, offset in book.items() if offset >= limit]:
                del book[value]
                self.excused_violations += 1
        self.committed_to.clear()
        self.generation = 0
        for forget in self.on_power_cut:
            forget()

    def verify_partition(self, place: LedgerPartition, records: list[Record]) -> None:
        """Compare a whole partition with what was promised."""
        where: dict[int, int] = {}
        last: dict[bytes, int] = {}
        # unsynced names of files go one by one in a power cut: the oldest may go alone, and the log begins later
        first = records[0].offset if records and self.power_cuts else 0
        for index, record in enumerate(records, first):
            if record.offset != index:
                self.report_violation("hole", f"{place[0]}-{place[1]}: offset {record.offset} at place {index}")
            (value,) = struct.unpack_from(">q", record.value or b"\xff" * 8)
            if value in where:
                self.report_violation(
                    "duplicate", f"{place[0]}-{place[1]}: {value} at {where[value]} and {record.offset}"
                )
            if value not in self.sent_values.get(place, {}):
                self.report_violation("ghost", f"{place[0]}-{place[1]}: {value}")
            where[value] = record.offset
            key = record.key or b""
            if value <= last.get(key, -1):
                self.report_violation("disorder", f"{place[0]}-{place[1]}: {value} after {last[key]}")
            last[key] = value
        for value, offset in self.acknowledged_offsets.get(place, {}).items():
            if where.get(value) != offset:
                self.report_violation(
                    "lost", f"{place[0]}-{place[1]}: {value} acknowledged at {offset}, now {where.get(value)}"
                )

    def verify_compacted_partition(self, place: LedgerPartition, records: list[Record]) -> None:
        """Compare a compacted partition with what was promised: the newest of each key, or one that came later."""
        newest: dict[bytes, int] = {}
        before = -1
        seen: dict[int, int] = {}
        for record in records:
            (value,) = struct.unpack_from(">q", record.value or b"\xff" * 8)
            name = f"{place[0]}-{place[1]}: {value}"
            if record.offset <= before:
                self.report_violation("hole", f"{name}: offset {record.offset} after {before}")
            if value in seen:
                self.report_violation("duplicate", f"{name} at {seen[value]} and {record.offset}")
            if self.key_of.get(value) != record.key or value not in self.sent_values.get(place, {}):
                self.report_violation("ghost", name)
            before = seen[value] = record.offset
            newest[record.key or b""] = record.offset
        for value, offset in self.acknowledged_offsets.get(place, {}).items():
            if newest.get(self.key_of[value], -1) < offset:
                key = self.key_of[value].decode()
                self.report_violation(
                    "lost", f"{place[0]}-{place[1]}: {value} of {key} acknowledged at {offset}, {newest}"
                )
