"""Logs of partitions as all clients together observed them, with writers and readers, derived from a history."""

from __future__ import annotations

from typing import NamedTuple

from sim.checkers.history import HistoryPartition, Operation, OperationOutcome

Value = tuple[HistoryPartition, int]
"""Partition and value; the pair is sent once."""


class Anomaly(NamedTuple):
    """Anomaly in a history; ``is_violation`` is False if Kafka allows it."""

    name: str
    detail: str
    is_violation: bool = True


class ObservedLog:
    """Logs of partitions as all clients together observed them, with writers and readers of each value.

    An operation is named by its index in ``ops``.
    """

    def __init__(self, ops: list[Operation], *, final: bool = True, idempotent: bool = True) -> None:
        self.ops = ops
        self.final = final
        """True if all partitions were read completely at the end."""
        self.idempotent = idempotent
        self.writer: dict[Value, int] = {}
        self.readers: dict[Value, list[int]] = {}
        """Numbers of the successful read_committed operations that read each value."""
        self.seen: dict[HistoryPartition, dict[int, dict[int, None]]] = {}
        """Values observed at each offset of a partition, by reads and by acknowledged sends.

        Values seen only by read_uncommitted reads are left out; `raw` includes them.
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
        """Rank of each observed offset of a partition, so that gaps (markers, compaction) do not count."""
        self.first: dict[HistoryPartition, dict[int, int]] = {}
        """Rank of the first offset of each value."""
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
        """Return True if an operation certainly happened: confirmed, or of unknown outcome and one write was read."""
        if op.outcome is OperationOutcome.INFO:
            return any((x.place, x.value) in self.readers for x in op.sends)
        return op.outcome is OperationOutcome.OK


def partition_name(place: HistoryPartition) -> str:
    """Return ``TOPIC-PARTITION``."""
    return f"{place[0]}-{place[1]}"
