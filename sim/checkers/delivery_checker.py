"""Checker of delivery guarantees to clients: clients record what they send, commit and read, and it reports violations.

``lost``: an acknowledged record is missing (after a power cut only synced ones must exist). ``duplicate``: a record
exists twice. ``disorder``: a producer's records are in another order than sent. ``hole``: offsets are not contiguous,
or, in a compacted topic, do not ascend. ``ghost``: a record was never sent, or a fetched offset never committed.
``offset-back``: a committed offset went back. ``OneOwnerPerPartitionPerGeneration``: two members of a group own a
partition. ``StaleMemberCommit``: a member of an old generation committed. ``bad-crc``: bytes with an invalid checksum
were served. ``out-of-order``: a producer was rejected without a loss. ``no-start``: the node could not start from its
own data.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.wire.record_batch.records import Record

LedgerPartition = tuple[str, int]
"""Topic name and partition number."""


@dataclass(slots=True)
class DeliveryChecker:
    """Ledger of a run: sent, acknowledged and committed data, and all violations as (name, detail)."""

    sent_values: dict[LedgerPartition, dict[int, None]] = field(default_factory=dict)
    acknowledged_offsets: dict[LedgerPartition, dict[int, int]] = field(default_factory=dict)
    """Offset of each value that must exist, by partition."""
    power_cuts: int = 0
    generation: int = 0
    """Newest generation that a member has joined."""
    violations: list[tuple[str, str]] = field(default_factory=list)
    committed_to: dict[LedgerPartition, int] = field(default_factory=dict)
    attempted_commits: dict[LedgerPartition, int] = field(default_factory=dict)
    synced_to: dict[LedgerPartition, int] = field(default_factory=dict)
    acknowledged_count: int = 0
    commits: int = 0
    excused_violations: int = 0
    on_power_cut: list[Callable[[], None]] = field(default_factory=list)
    key_of: dict[int, bytes] = field(default_factory=dict)
    """Key of each value, in compacted topics."""
    owners: dict[tuple[LedgerPartition, int], str] = field(default_factory=dict)
    """Owner of each partition in a generation."""

    def report_violation(self, name: str, detail: str) -> None:
        """Add a violation, which makes the run fail at its end."""
        self.violations.append((name, detail))

    def record_sent(self, place: LedgerPartition, values: list[int]) -> None:
        """Record values before they are sent to a partition; others that appear in it are violations."""
        self.sent_values.setdefault(place, {}).update(dict.fromkeys(values))

    def record_acknowledged(self, place: LedgerPartition, values: list[int], offset: int, cuts: int) -> None:
        """Record that values were acknowledged, with consecutive offsets from ``offset`` on: they must not be lost.

        ``cuts``: number of power cuts before they were sent. If there was one since, the call is ignored: the response
        may be about lost records.
        """
        if cuts != self.power_cuts:
            return
        book = self.acknowledged_offsets.setdefault(place, {})
        for index, value in enumerate(values):
            book[value] = offset + index
            self.acknowledged_count += 1

    def report_out_of_order(self, place: LedgerPartition) -> None:
        """Report ``out-of-order``, a batch rejected for its sequence, unless there was a power cut in the run."""
        if not self.power_cuts:
            self.report_violation("out-of-order", f"{place[0]}-{place[1]}")

    def report_out_of_range(self, place: LedgerPartition, offset: int) -> None:
        """Report ``lost``, a reader beyond the end of the log, unless there was a power cut in the run."""
        if not self.power_cuts:
            self.report_violation("lost", f"{place[0]}-{place[1]} ends before {offset}")

    def record_commit_attempt(self, place: LedgerPartition, offset: int) -> None:
        """Record an offset before it is committed: the commit may happen without a response."""
        self.attempted_commits[place] = max(self.attempted_commits.get(place, 0), offset)

    def record_commit(self, place: LedgerPartition, offset: int, cuts: int) -> None:
        """Record an acknowledged offset commit, below which the group must not go.

        ``cuts``: number of power cuts before its request; after a further one the commit is only counted.
        """
        self.commits += 1
        if cuts != self.power_cuts:
            return
        self.committed_to[place] = max(self.committed_to.get(place, 0), offset)

    def verify_committed_offset(self, place: LedgerPartition, offset: int, requested_at: int) -> None:
        """Verify a committed offset that was fetched; report ``offset-back`` if too low, ``ghost`` if never committed.

        ``requested_at``: committed offset that was acknowledged when the request was sent.
        """
        least = min(requested_at, self.committed_to.get(place, 0))
        if offset < least:
            self.report_violation("offset-back", f"{place[0]}-{place[1]}: {offset} < {least}")
        if offset > self.attempted_commits.get(place, 0):
            self.report_violation("ghost", f"{place[0]}-{place[1]}: position {offset} was never committed")

    def record_generation(self, generation: int, cuts: int) -> None:
        """Record a member's new generation, which ends older ones; ignored after a power cut since its request.

        ``cuts``: number of power cuts before the request.
        """
        if cuts == self.power_cuts:
            self.generation = max(self.generation, generation)

    def verify_commit_generation(self, generation: int, newest: int, cuts: int) -> None:
        """Report ``StaleMemberCommit`` if a commit was accepted from an older generation than ``newest``.

        ``newest``, ``cuts``: newest generation and number of power cuts when the request was sent.
        """
        if generation < newest and cuts == self.power_cuts:
            self.report_violation("StaleMemberCommit", f"a member of generation {generation} after {newest} had begun")

    def record_assignment(self, place: LedgerPartition, generation: int, member: str) -> None:
        """Record the owner of a partition in a generation; report a second one unless power was cut in the run."""
        owner = self.owners.setdefault((place, generation), member)
        if owner != member and not self.power_cuts:
            self.report_violation(
                "OneOwnerPerPartitionPerGeneration",
                f"{place[0]}-{place[1]} in generation {generation}: {owner} and {member}",
            )

    def record_power_cut(self, synced: dict[LedgerPartition, int]) -> None:
        """Record a power cut: records at or above the offsets ``synced`` may be lost, and committed offsets go back.

        `on_power_cut` callbacks are called.
        """
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
        """Compare all records of a partition with those sent and acknowledged; report each difference."""
        where: dict[int, int] = {}
        last: dict[bytes, int] = {}
        # A power cut may remove unsynced file names one by one: without its oldest segment the log starts later.
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
        """Compare all records of a compacted partition with those sent; report each difference.

        Of each key, the newest acknowledged record or a later one must exist.
        """
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
