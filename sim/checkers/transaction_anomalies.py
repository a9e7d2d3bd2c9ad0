"""Checker of transactions in a history: atomicity, and visibility only after the commit.

``G1a``: read, though its transaction was aborted or its send rejected. ``precommitted-read``: read before its client
requested the commit, or by the transaction that wrote it. ``torn-txn``: only a part of a transaction exists.
``lso-stuck``: read_committed readers were blocked for longer than any transaction may last.

`check_copy` finds anomalies of a transactional copy with committed offsets: ``copy-twice``, ``copy-lost``,
``copy-ghost`` (never in the source, or at or above the committed offset), ``copy-disorder``. The copiers themselves
detect ``undecided-read`` (a stable offset fetch returned an offset while a transaction had a pending one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sim.checkers.history import HistoryPartition, OperationOutcome
from sim.checkers.observed_log import Anomaly, ObservedLog, partition_name

MAX_LSO_DELAY_S = 20.0
"""Maximum delay of the last stable offset: a transaction lasts up to 8 s, its coordinator ends it within 12 s more."""


def aborted_read(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``G1a``: reads of values whose transaction was aborted, or whose send was rejected."""
    for place, value in book.readers:
        writer = book.writer.get((place, value))
        if writer is not None and book.ops[writer].outcome is OperationOutcome.FAIL:
            yield Anomaly("G1a", f"{partition_name(place)}: {value}")


def precommitted_read(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``precommitted-read``: reads of values before their commit request, or by the transaction itself."""
    for (place, value), readers in book.readers.items():
        writer = book.writer.get((place, value))
        if writer is None or book.ops[writer].outcome is OperationOutcome.FAIL:
            continue
        requested = book.ops[writer].commit_requested_at
        if writer in readers or any(book.ops[reader].ended < requested for reader in readers):
            yield Anomaly("precommitted-read", f"{partition_name(place)}: {value}")


def torn_txn(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``torn-txn``: transactions of which only some values exist."""
    for op in book.ops if book.final else ():
        found = [(x.place, x.value) in book.readers for x in op.sends]
        if op.kind == "txn" and any(found) and not all(found):
            yield Anomaly("torn-txn", f"{op.process}: {[x.value for x in op.sends]}")


def stuck_last_stable_offset(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``lso-stuck``: partitions whose last stable offset stayed below the high watermark for too long."""
    since: dict[HistoryPartition, tuple[int, float]] = {}
    reported: set[tuple[HistoryPartition, int]] = set()
    for op in sorted(book.ops, key=lambda x: x.ended):
        for look in op.offset_steps if op.outcome is OperationOutcome.OK else ():
            offset, began_s = since.get(look.place, (-1, op.ended_s))
            if look.last_stable_offset >= look.high_watermark:
                since.pop(look.place, None)
            elif offset != look.last_stable_offset:
                since[look.place] = (look.last_stable_offset, op.ended_s)
            elif op.began_s - began_s > MAX_LSO_DELAY_S and (look.place, offset) not in reported:
                reported.add((look.place, offset))
                held = f"at {offset} of {look.high_watermark} for {op.began_s - began_s:.1f} s"
                yield Anomaly("lso-stuck", f"{partition_name(look.place)}: {held}")


RULES: tuple[Callable[[ObservedLog], Iterator[Anomaly]], ...] = (
    aborted_read,
    precommitted_read,
    torn_txn,
    stuck_last_stable_offset,
)


def check_copy(
    source: Mapping[HistoryPartition, Sequence[tuple[int, int]]],
    target: Sequence[int],
    positions: Mapping[HistoryPartition, int],
) -> list[Anomaly]:
    """Return the anomalies of a completed transactional copy, as a read_committed reader sees it.

    Args:
        source: offsets and values of each copied partition, in order; values are unique.
        target: values of the target partition, in order.
        positions: committed offset of the copy in each source partition.
    """
    out: list[Anomaly] = []
    of = {value: (place, offset) for place, records in source.items() for offset, value in records}
    seen: dict[int, None] = {}
    last: dict[HistoryPartition, int] = {}
    for value in target:
        if value not in of:
            out.append(Anomaly("copy-ghost", str(value)))
            continue
        if value in seen:
            out.append(Anomaly("copy-twice", str(value)))
            continue
        seen[value] = None
        place, offset = of[value]
        if offset < last.get(place, -1):
            out.append(Anomaly("copy-disorder", f"{value} of {partition_name(place)} at {offset} after {last[place]}"))
        if offset >= positions.get(place, 0):
            out.append(
                Anomaly("copy-ghost", f"{value}: {partition_name(place)} is copied to {positions.get(place, 0)} only")
            )
        last[place] = max(offset, last.get(place, -1))
    for place, records in source.items():
        for offset, value in records:
            if offset < positions.get(place, 0) and value not in seen:
                out.append(Anomaly("copy-lost", f"{value} of {partition_name(place)} at {offset}"))
    return out
