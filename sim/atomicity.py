"""What transactions promise of a history: of each all is seen or nothing, and nothing before it is committed.

``G1a``: read, though its transaction was aborted. ``precommitted-read``: read before its client asked for the commit,
or by the transaction that wrote it. ``torn-txn``: one part of a transaction is there and the other is not.
``lso-stuck``: readers of what is committed were held up for longer than any transaction may last.

Of a copy, record by record in transactions together with the positions it has reached (`check_copy`): ``copy-twice``,
``copy-lost``, ``copy-ghost`` (nobody gave it that), ``copy-disorder``. Seen by the copiers themselves:
``undecided-read`` (who asked for a position that is decided was told one while a transaction had another under way).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sim.book import Anomaly, Book, name_of
from sim.history import Outcome, Place

MOST_HELD_UP_S = 20.0
"""A transaction of the workload lasts 8 s at most, and its coordinator has 12 s more to end it."""


def aborted_read(book: Book) -> Iterator[Anomaly]:
    """Somebody read what certainly was not written."""
    for place, value in book.readers:
        writer = book.writer.get((place, value))
        if writer is not None and book.ops[writer].outcome is Outcome.FAIL:
            yield Anomaly("G1a", f"{name_of(place)}: {value}")


def precommitted_read(book: Book) -> Iterator[Anomaly]:
    """Somebody read what nobody had asked to be committed by then; or a transaction read what it writes itself."""
    for (place, value), readers in book.readers.items():
        writer = book.writer.get((place, value))
        if writer is None or book.ops[writer].outcome is Outcome.FAIL:
            continue
        asked = book.ops[writer].asked
        if writer in readers or any(book.ops[reader].ended < asked for reader in readers):
            yield Anomaly("precommitted-read", f"{name_of(place)}: {value}")


def torn_txn(book: Book) -> Iterator[Anomaly]:
    """Of what one transaction wrote, some is there and some is not."""
    for op in book.ops if book.final else ():
        found = [(x.place, x.value) in book.readers for x in op.sends]
        if op.kind == "txn" and any(found) and not all(found):
            yield Anomaly("torn-txn", f"{op.process}: {[x.value for x in op.sends]}")


def stuck_lso(book: Book) -> Iterator[Anomaly]:
    """A partition's last stable offset stood still below its high watermark for too long."""
    since: dict[Place, tuple[int, float]] = {}
    told: set[tuple[Place, int]] = set()
    for op in sorted(book.ops, key=lambda x: x.ended):
        for look in op.looks if op.outcome is Outcome.OK else ():
            offset, began_s = since.get(look.place, (-1, op.ended_s))
            if look.stable >= look.high:
                since.pop(look.place, None)
            elif offset != look.stable:
                since[look.place] = (look.stable, op.ended_s)
            elif op.began_s - began_s > MOST_HELD_UP_S and (look.place, offset) not in told:
                told.add((look.place, offset))
                held = f"at {offset} of {look.high} for {op.began_s - began_s:.1f} s"
                yield Anomaly("lso-stuck", f"{name_of(look.place)}: {held}")


RULES: tuple[Callable[[Book], Iterator[Anomaly]], ...] = (aborted_read, precommitted_read, torn_txn, stuck_lso)


def check_copy(
    source: Mapping[Place, Sequence[tuple[int, int]]],
    target: Sequence[int],
    positions: Mapping[Place, int],
) -> list[Anomaly]:
    """Judge a copy that is over. All is as a reader of what is committed sees it.

    ``source``: offsets and values of each partition that was copied, in order; no value is there twice. ``target``: the
    values in the one partition all of them went to, in order. ``positions``: up to where each source was copied.
    """
    out: list[Anomaly] = []
    of = {value: (place, offset) for place, records in source.items() for offset, value in records}
    seen: dict[int, None] = {}
    last: dict[Place, int] = {}
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
            out.append(Anomaly("copy-disorder", f"{value} of {name_of(place)} at {offset} after {last[place]}"))
        if offset >= positions.get(place, 0):
            out.append(Anomaly("copy-ghost", f"{value}: {name_of(place)} is copied to {positions.get(place, 0)} only"))
        last[place] = max(offset, last.get(place, -1))
    for place, records in source.items():
        for offset, value in records:
            if offset < positions.get(place, 0) and value not in seen:
                out.append(Anomaly("copy-lost", f"{value} of {name_of(place)} at {offset}"))
    return out
