"""Logs as all clients together saw them, with writers and readers, derived from a history."""

from __future__ import annotations

from typing import NamedTuple

from sim.checkers.history import HistoryPartition, Operation, OperationOutcome

Value = tuple[HistoryPartition, int]
"""A value and where it was sent: that is sent once."""


class Anomaly(NamedTuple):
    """Anomaly that was found."""

    name: str
    detail: str
    is_violation: bool = True


class ObservedLog:
    """Logs as all clients together saw them, with writers and readers, derived from a history."""

    def __init__(self, ops: list[Operation], *, final: bool = True, idempotent: bool = True) -> None:
        self.ops = ops
        self.final = final
        """Whether everything was read once more at the end."""
        self.idempotent = idempotent
        self.writer: dict[Value, int] = {}
        self.readers: dict[Value, list[int]] = {}
        """Only of reads that are ok, and show only what is committed."""
        self.seen: dict[HistoryPartition, dict[int, dict[int, None]]] = {}
        """Place -> offset -> values that somebody saw there, from every poll, and from sends that were told.

        Without what only readers saw who also read what is not committed: `raw` has it all.
        """
        self.raw: dict[HistoryPartition, dict[int, dict[int, None]]] = {}
        for number, op in enumerate(ops):
            for send in op.sends:
                self.writer[send.place, send.value] = number
            for poll in op.polls:
                self._read(number, op, poll.place, poll.records)
        for op in ops:
            for send in op.sends if self.is_committed(op) else ():
                for view in (self.seen, self.raw) if send.offset >= 0 else ():
                    view.setdefault(send.place, {}).setdefault(send.offset, {})[send.value] = None
        self.rank: dict[HistoryPartition, dict[int, int]] = {}
        """Place -> offset -> its number among the offsets somebody saw: holes (markers, compaction) do not count."""
        self.first: dict[HistoryPartition, dict[int, int]] = {}
        """Place -> value -> number of the first offset it was seen at."""
        self.last: dict[HistoryPartition, dict[int, int]] = {}
        for place, offsets in self.seen.items():
            self._order(place, sorted(offsets))

    def _read(
        self, number: int, op: Operation, place: HistoryPartition, records: tuple[tuple[int, int | None], ...]
    ) -> None:
        for offset, value in records:
            if value is None:
                continue
            for view in (self.raw,) if op.reads_uncommitted else (self.seen, self.raw):
                view.setdefault(place, {}).setdefault(offset, {})[value] = None
            if op.outcome is OperationOutcome.OK and not op.reads_uncommitted:
                self.readers.setdefault((place, value), []).append(number)

    def _order(self, place: HistoryPartition, offsets: list[int]) -> None:
        self.rank[place] = {offset: index for index, offset in enumerate(offsets)}
        first, last = self.first.setdefault(place, {}), self.last.setdefault(place, {})
        for index, offset in enumerate(offsets):
            for value in self.seen[place][offset]:
                first.setdefault(value, index)
                last[value] = index

    def is_committed(self, op: Operation) -> bool:
        """Return True if it certainly happened: confirmed, or its writes were read."""
        if op.outcome is OperationOutcome.INFO:
            return any((x.place, x.value) in self.readers for x in op.sends)
        return op.outcome is OperationOutcome.OK


def partition_name(place: HistoryPartition) -> str:
    """``topic-partition``."""
    return f"{place[0]}-{place[1]}"
