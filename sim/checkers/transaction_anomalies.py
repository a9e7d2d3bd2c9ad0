"""Guarantees of transactions in a history: atomicity, and visibility after the commit only.

``G1a``: read, though its transaction was aborted. ``precommitted-read``: read before its client requested the commit,
or by the transaction that wrote it. ``torn-txn``: only a part of a transaction exists. ``lso-stuck``: read_committed
readers were blocked for longer than any transaction may last.

Of a copy, record by record in transactions with its committed offsets (`check_copy`): ``copy-twice``, ``copy-lost``,
``copy-ghost`` (never in the source), ``copy-disorder``. Detected by the copiers themselves: ``undecided-read`` (a
stable read returned an offset while a transaction had a pending one).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sim.checkers.history import HistoryPartition, OperationOutcome
from sim.checkers.observed_log import Anomaly, ObservedLog, partition_name

MAX_LSO_DELAY_S = 20.0
"""A transaction of the workload lasts 8 s at most, and its coordinator has 12 s more to end it."""


def aborted_read(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield reads of values that were certainly not written."""
    for place, value in book.readers:
        writer = book.writer.get((place, value))
        if writer is not None and book.ops[writer].outcome is OperationOutcome.FAIL:
            yield Anomaly("G1a", f"{partition_name(place)}: {value}")


def precommitted_read(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield reads of values before their commit request, or by the transaction that writes them."""
    for (place, value), readers in book.readers.items():
        writer = book.writer.get((place, value))
        if writer is None or book.ops[writer].outcome is OperationOutcome.FAIL:
            continue
        asked = book.ops[writer].commit_requested_at
        if writer in readers or any(book.ops[reader].ended < asked for reader in readers):
            yield Anomaly("precommitted-read", f"{partition_name(place)}: {value}")


def torn_txn(book: ObservedLog) -> Iterator[Anomaly]:
    """Of what one transaction wrote, some is there and some is not."""
    for op in book.ops if book.final else ():
        found = [(x.place, x.value) in book.readers for x in op.sends]
        if op.kind == "txn" and any(found) and not all(found):
            yield Anomaly("torn-txn", f"{op.process}: {[x.value for x in op.sends]}")


def stuck_last_stable_offset(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield a partition's last stable offset stood still below its high watermark for too long."""
    since: dict[HistoryPartition, tuple[int, float]] = {}
    told: set[tuple[HistoryPartition, int]] = set()
    for op in sorted(book.ops, key=lambda x: x.ended):
        for look in op.offset_steps if op.outcome is OperationOutcome.OK else ():
            offset, began_s = since.get(look.place, (-1, op.ended_s))
            if look.last_stable_offset >= look.high_watermark:
                since.pop(look.place, None)
            elif offset != look.last_stable_offset:
                since[look.place] = (look.last_stable_offset, op.ended_s)
            elif op.began_s - began_s > MAX_LSO_DELAY_S and (look.place, offset) not in told:
                told.add((look.place, offset))
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
    """Judge a copy that is over. All is as a reader of what is committed sees it.

    ``source``: offsets and values of each partition that was copied, in order; no value is there twice. ``target``: the
    values in the one partition all of them went to, in order. ``positions``: up to where each source was copied.
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
