"""Checker of client histories for anomalies, with the names of ``jepsen.tests.kafka``.

`find_anomalies` returns all anomalies of a history. Some of them are allowed in Kafka and only reported: skipped or
repeated reads of consumers in a group, duplicates of producers that are not idempotent, others' writes between those of
an operation, and cycles that depend on the order of writes. Additional anomalies are ``ghost`` (read, but never sent)
and ``crc`` (wrong checksum for its partition). Those of transactions are from `sim.checkers.transaction_anomalies`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

from sim.checkers import transaction_anomalies
from sim.checkers.dependency_cycles import find_cycles
from sim.checkers.history import HistoryPartition, Operation, OperationOutcome
from sim.checkers.observed_log import Anomaly, ObservedLog, partition_name

# ---------------------------------------------------------------------- content of the logs


def inconsistent_offsets(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``inconsistent-offsets``: offsets at which two different values were read or acknowledged."""
    for place, offsets in book.raw.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield Anomaly(
                    "inconsistent-offsets", f"{partition_name(place)} at {offset}: {', '.join(map(str, values))}"
                )


def duplicate(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``duplicate``: values seen at two offsets; a violation if producers are idempotent."""
    for place, first in book.first.items():
        for value, index in first.items():
            if book.last[place][value] != index:
                yield Anomaly("duplicate", f"{partition_name(place)}: {value}", book.idempotent)


def lost_write(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``lost-write``: committed writes that no client read, though later ones in the partition were read."""
    for place, last in book.last.items():
        read = [book.first[place][value] for value in last if (place, value) in book.readers]
        bound = max(read, default=-1)
        for value, index in last.items():
            writer = book.writer.get((place, value))
            if index > bound or (place, value) in book.readers or writer is None:
                continue
            if book.is_committed(book.ops[writer]):
                yield Anomaly("lost-write", f"{partition_name(place)}: {value}")


def unread_write(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``unseen``: acknowledged writes that no client read, if all partitions were read at the end."""
    for op in book.ops if book.final else ():
        for send in op.sends if op.outcome is OperationOutcome.OK else ():
            if (send.place, send.value) not in book.readers:
                yield Anomaly("unseen", f"{partition_name(send.place)}: {send.value} acknowledged at {send.offset}")


def phantom_read(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``ghost``: values that were read but never sent."""
    for place, offsets in book.raw.items():
        for value in dict.fromkeys(value for values in offsets.values() for value in values):
            if (place, value) not in book.writer:
                yield Anomaly("ghost", f"{partition_name(place)}: {value}")


def corrupt_record(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``crc``: records that were read with a wrong checksum for their partition."""
    for op in book.ops:
        for poll in op.polls:
            for offset, value in poll.records:
                if value is None:
                    yield Anomaly("crc", f"{partition_name(poll.place)} at {offset}")


# ---------------------------------------------------------------------- order seen by one client


def _by_process(book: ObservedLog) -> Iterator[list[Operation]]:
    """Yield the operations of each client, of any outcome, in the order of their ends, split at its restarts."""
    running: dict[str, list[Operation]] = {}
    for op in book.ops:
        if op.kind == "crash":
            yield running.pop(op.process, [])
        else:
            running.setdefault(op.process, []).append(op)
    yield from running.values()


def poll_order_between_operations(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``poll-skip`` and ``nonmonotonic-poll``: gaps and repetitions between consecutive reads of a client."""
    for ops in _by_process(book):
        before: dict[HistoryPartition, int] = {}
        dealt = False
        for op in ops:
            if op.outcome is not OperationOutcome.OK:
                continue
            if op.kind in ("assign", "subscribe"):
                dealt = op.kind == "subscribe"
                before = {place: rank for place, rank in before.items() if place in op.places}
            for poll in () if op.reads_uncommitted else op.polls:
                ranks = [book.rank[poll.place][offset] for offset, value in poll.records if value is not None]
                if ranks and poll.place in before and ranks[0] - before[poll.place] != 1:
                    name = "poll-skip" if ranks[0] > before[poll.place] else "nonmonotonic-poll"
                    yield Anomaly(
                        name, f"{op.process}: {partition_name(poll.place)} at {poll.records[0][0]}", not dealt
                    )
                if ranks:
                    before[poll.place] = ranks[-1]


def poll_order_within(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``int-poll-skip`` and ``int-nonmonotonic-poll``: gaps and repetitions within one operation."""
    for op in book.ops:
        before: dict[HistoryPartition, int] = {}
        for poll in op.polls if op.outcome is OperationOutcome.OK and not op.reads_uncommitted else ():
            if poll.place in op.places and op.kind not in ("assign", "subscribe"):
                continue  # assigned again during the operation
            for offset, value in poll.records:
                rank = -1 if value is None else book.rank[poll.place][offset]
                delta = rank - before.get(poll.place, rank - 1)
                if rank >= 0 and delta != 1:
                    name = "int-poll-skip" if delta > 1 else "int-nonmonotonic-poll"
                    yield Anomaly(name, f"{op.process}: {partition_name(poll.place)} at {offset}")
                if rank >= 0:
                    before[poll.place] = rank


def send_order(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``nonmonotonic-send``: a later send of a client that has a lower offset than an earlier one."""
    for ops in _by_process(book):
        before: dict[HistoryPartition, int] = {}
        for op in ops:
            ends: dict[HistoryPartition, int] = {}
            for send in op.sends if op.outcome is not OperationOutcome.FAIL else ():
                first = book.first.get(send.place, {}).get(send.value)
                if first is None:
                    continue
                if send.place not in ends and first <= before.get(send.place, -1):
                    yield Anomaly("nonmonotonic-send", f"{op.process}: {partition_name(send.place)} {send.value}")
                ends[send.place] = book.last[send.place][send.value]
            before.update(ends)


def send_order_within(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield ``int-nonmonotonic-send`` and ``int-send-skip`` within one operation; others' writes may explain a skip."""
    for op in book.ops:
        before: dict[HistoryPartition, int] = {}
        for send in op.sends if op.outcome is not OperationOutcome.FAIL else ():
            first = book.first.get(send.place, {}).get(send.value)
            if first is None:
                continue
            delta = first - before.get(send.place, first - 1)
            if delta != 1:
                name = "int-send-skip" if delta > 1 else "int-nonmonotonic-send"
                yield Anomaly(name, f"{op.process}: {partition_name(send.place)} {send.value}", delta < 1)
            before[send.place] = book.last[send.place][send.value]


# ---------------------------------------------------------------------- cycles


def cyclic_dependencies(book: ObservedLog) -> Iterator[Anomaly]:
    """Yield cycles among operations: ``G1c`` by reads, ``G0`` (no violation) by the order of writes."""
    reads: dict[int, dict[int, None]] = {}
    writes: dict[int, dict[int, None]] = {}
    for value, readers in book.readers.items():
        writer = book.writer.get(value)
        for reader in readers:
            if writer is not None and reader != writer:
                reads.setdefault(writer, {})[reader] = None
    for place, first in book.first.items():
        line = [book.writer[place, v] for v in sorted(first, key=first.__getitem__) if (place, v) in book.writer]
        for one, other in pairwise(line):
            if one != other:
                writes.setdefault(one, {})[other] = None
    for name, edges, bad in (("G1c", reads, True), ("G0", writes, False)):
        for suffix, ops in find_cycles(book.ops, edges):
            yield Anomaly(name + suffix, " -> ".join(f"{book.ops[x].process}#{x}" for x in ops), bad)


RULES: tuple[Callable[[ObservedLog], Iterator[Anomaly]], ...] = (
    inconsistent_offsets,
    duplicate,
    lost_write,
    unread_write,
    phantom_read,
    corrupt_record,
    *transaction_anomalies.RULES,
    poll_order_between_operations,
    poll_order_within,
    send_order,
    send_order_within,
    cyclic_dependencies,
)


def find_anomalies(ops: list[Operation], *, final: bool = True, idempotent: bool = True) -> list[Anomaly]:
    """Return every anomaly of a history, those that Kafka allows included.

    ``final``: all partitions were read completely at the end. ``idempotent``: duplicates are violations.
    """
    book = ObservedLog(ops, final=final, idempotent=idempotent)
    return [found for rule in RULES for found in rule(book)]


def max_read_lag_s(ops: list[Operation]) -> float:
    """Return a lower bound of the largest staleness of a read in seconds.

    It is the time for which an unread record had been acknowledged when the read began.
    """
    worst = 0.0
    acked: list[tuple[float, HistoryPartition, int]] = []
    for op in sorted(ops, key=lambda x: x.ended):
        if op.outcome is OperationOutcome.OK:
            acked += [(op.ended_s, x.place, x.offset) for x in op.sends if x.offset >= 0]
        reached = {x.place: x.records[-1][0] for x in op.polls if x.records and op.outcome is OperationOutcome.OK}
        for place, offset in reached.items():
            missed = [at for at, where, o in acked if where == place and o > offset and at < op.began_s]
            worst = max(worst, op.began_s - min(missed, default=op.began_s))
    return worst
