"""Complete batches in a file range, which ends at a byte count and not at a batch boundary."""

from __future__ import annotations

import random

import pytest

from ottla.broker.share_partitions.acquisition import AcquiredRange, AcquireRequest, FetchedOffsets, acquire_records
from ottla.broker.share_partitions.record_batch_positions import WINDOW_BYTES, find_batches, slice_acquired
from ottla.broker.share_partitions.tests.test_share_partition import SharePartitionFixture
from ottla.broker.tests.handler_fixture import VirtualEnv
from ottla.env.disk import FileSlice
from ottla.wire.errors import ProtocolError
from ottla.wire.record_batch.records import NewRecord, build_batch


def part_of(*batches: bytes) -> FileSlice:
    disk = VirtualEnv().disk
    disk.makedirs("/d")
    file = disk.open("/d/log", create=True)
    raw = b"".join(batches)
    file.pwrite(raw, 0)
    return FileSlice(file, 0, len(raw))


def batch(base_offset: int, count: int, value: bytes = b"value") -> bytes:
    raw = bytearray(build_batch([NewRecord(None, value, 5)] * count))
    raw[:8] = base_offset.to_bytes(8, "big")
    return bytes(raw)


FIRST, SECOND = batch(0, 3), batch(3, 2)


@pytest.mark.parametrize("size", range(len(FIRST), len(FIRST) + len(SECOND) + 1))
def test_find_batches_leaves_out_truncated_batch(size: int) -> None:
    part = part_of(FIRST, SECOND)
    whole = [(0, 2), (3, 4)] if size == len(part) else [(0, 2)]
    assert [one.offsets for one in find_batches(FileSlice(part.file, 0, size), 0, 99)] == whole


def test_find_batches_reads_header_across_two_windows() -> None:
    value = bytes(WINDOW_BYTES - len(batch(0, 1, b"")) - 20)
    first = batch(0, 1, value)
    assert WINDOW_BYTES - 61 < len(first) < WINDOW_BYTES
    part = part_of(first, SECOND)
    found = find_batches(part, 0, 99)
    assert [one.offsets for one in found] == [(0, 0), (3, 4)]
    assert len(slice_acquired(part, found, [AcquiredRange(3, 4, 1)])) == len(SECOND)


TEN = [batch(base, 5) for base in range(0, 50, 5)]


@pytest.mark.parametrize(
    ("new_from", "records", "count"),
    [(0, 1, 1), (0, 5, 1), (0, 6, 2), (0, 50, 10), (0, 99, 10), (20, 1, 5), (20, 6, 6), (48, 1, 10), (60, 1, 10)],
)
def test_find_batches_reads_only_headers_for_max_records(new_from: int, records: int, count: int) -> None:
    assert len(find_batches(part_of(*TEN), new_from, records)) == count


def test_find_batches_counts_from_range_start_after_a_gap() -> None:
    assert len(find_batches(part_of(*TEN[4:]), 3, 6)) == 2


class MinimalHeaderReadFixture(SharePartitionFixture):
    """Reads the minimal number of headers."""

    def fetch(
        self, member: str = "a", most: int = 5, size: int = 100, strict: bool = False, upto: int = 49
    ) -> list[AcquiredRange]:
        at = self.share.next_fetch_offset()
        part = part_of(*TEN[(at - at % 5) // 5 : (upto + 5) // 5])
        read = find_batches(part, max(self.share.end_offset + 1, self.share.start_offset), most)
        return acquire_records(
            self.share,
            AcquireRequest(member, most, size, strict),
            FetchedOffsets(at, [x.offsets for x in read]),
            self.now,
        )


@pytest.mark.parametrize("seed", range(30))
def test_acquired_records_do_not_depend_on_later_headers(seed: int) -> None:
    rng = random.Random(seed)
    locks, strict = rng.choice([7, 12, 100]), rng.random() < 0.5
    both = [
        kind(max_record_locks=locks, max_delivery_count=rng.choice([2, 5]))
        for kind in (SharePartitionFixture, MinimalHeaderReadFixture)
    ]
    both[1].share.limits = both[0].share.limits
    for _ in range(60):
        choice, most, member = rng.random(), rng.choice([1, 3, 5, 8, 30]), rng.choice("ab")
        first, types = rng.randrange(50), [rng.choice([1, 2, 3]) for _ in range(rng.randint(1, 6))]
        outs = []
        for fixture in both:
            if choice < 0.5:
                outs.append(fixture.fetch(member, most, strict=strict))
            elif choice < 0.9:
                try:
                    fixture.acknowledge(first, first + len(types) - 1, *types, member=member)
                except ProtocolError as error:
                    outs.append(error.code)
            else:
                outs.append(fixture.tick(40))
        assert outs[:1] == outs[1:]
        assert (both[0].states, both[0].window) == (both[1].states, both[1].window)
