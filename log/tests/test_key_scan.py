"""The two written-out loops agree with reading every record, whatever the sizes of its numbers."""

from __future__ import annotations

import random

import pytest

from ottla.log.key_scan import note_keys, places, short, survivors
from ottla.wire import batch as b
from ottla.wire import records as r
from ottla.wire.errors import WireError

BASE = 5_000_000_000


def batch(rng: random.Random, count: int) -> tuple[bytes, list[r.Record]]:
    sizes = (0, 1, 5, 31, 32, 33, 63, 64, 70, 9000)
    keys = [rng.randbytes(rng.choice(sizes)) for _ in range(max(count // 3, 1))]
    items = [
        r.NewRecord(
            None if rng.random() < 0.1 else rng.choice(keys),
            None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 3, 60, 200, 20_000))),
            rng.choice((0, 1, 70, 10**6, 2**41)),
        )
        for _ in range(count)
    ]
    raw = bytearray(r.build(items))
    b.stamp(raw, 0, BASE, 0)
    header = b.parse_header(raw)
    return bytes(r.body(raw, header)), list(r.iterate(raw, header))


@pytest.mark.parametrize("count", [1, 3, 70, 300, 9000])
def test_both_loops_find_what_reading_every_record_finds(count: int) -> None:
    for seed in range(1 if count > 1000 else 20):
        rng = random.Random(seed * 1000 + count)
        data, records = batch(rng, count)
        first = BASE + rng.randrange(count)
        found: dict[bytes, int] = {}
        note_keys(data, count, BASE, first, found)
        assert found == {short(x.key): x.offset for x in records if x.key is not None and x.offset >= first}
        lie = places(data, count)
        assert [lie[0][0], lie[-1][1]] == [0, len(data)]
        latest = BASE + rng.randrange(count)
        for keep_deletes in (True, False):
            kept, tombstones = survivors(data, count, BASE, found, latest, keep_deletes=keep_deletes)
            want = [
                x
                for x in records
                if x.offset > latest
                or (
                    x.key is not None
                    and x.offset >= found.get(short(x.key), -1)
                    and (x.value is not None or keep_deletes)
                )
            ]
            assert kept == [lie[x.offset - BASE] for x in want]
            assert tombstones is any(x.value is None for x in want)


def test_records_that_are_cut_off_are_told() -> None:
    data, _ = batch(random.Random(1), 50)
    for at in (0, 1, 7, len(data) // 2):
        with pytest.raises((IndexError, WireError)):
            note_keys(data[:at], 50, BASE, BASE, {})
        with pytest.raises((IndexError, WireError)):
            survivors(data[:at], 50, BASE, {}, BASE + 50, keep_deletes=True)
