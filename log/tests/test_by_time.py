"""Records found by time, a little at a time, while the log changes. Rules: ``UnifiedLog.fetchOffsetByTimestamp``."""

from __future__ import annotations

import random
import tracemalloc

import pytest
import snappy

from ottla.log.by_time import Looking, TimeOffset, find_by_time, find_max_time, finding_by_time, finding_max_time
from ottla.log.partition_log import PartitionLog
from ottla.log.settings import LogSettings
from ottla.log.state import remove_files
from ottla.log.tests.world import NOW, SMALL, fill, memory_disk, new_log, put
from ottla.wire import batch as b
from ottla.wire import records as r
from ottla.wire.compression import FREE_BYTES, Codec
from ottla.wire.errors import WireError


def at_times(*times: int, codec: Codec = Codec.NONE) -> bytearray:
    return bytearray(r.build([r.NewRecord(None, b"v" * 20, NOW + t) for t in times], codec=codec))


def mixed(seed: int, settings: LogSettings = SMALL) -> PartitionLog:
    """Times that go up and down, over several segments."""
    dice = random.Random(seed)
    log = new_log(memory_disk(seed).session(), settings)
    for number in range(60):
        times = [number * 10 + dice.randrange(-400, 400) for _ in range(dice.randrange(1, 6))]
        put(log, at_times(*times, codec=dice.choice([Codec.NONE, Codec.GZIP])))
    return log


def every(log: PartitionLog) -> list[TimeOffset]:
    return [
        TimeOffset(x.timestamp_ms, x.offset, 0)
        for header, raw in log.batches(log.log_start_offset)
        for x in r.iterate(raw, header)
        if x.offset >= log.log_start_offset
    ]


def pauses(steps: Looking) -> tuple[int, TimeOffset | None]:
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return count, done.value
        count += 1


def test_the_first_record_in_offset_order_that_is_as_late_is_found() -> None:
    for seed in range(12):
        log = mixed(seed)
        log.raise_start(random.Random(seed).randrange(60))
        told = every(log)
        for wanted in range(NOW - 500, NOW + 1100, 37):
            want = next((x for x in told if x.timestamp_ms >= wanted), None)
            assert find_by_time(log, wanted, log.log_end_offset) == want
            if want is not None:
                assert find_by_time(log, wanted, want.offset) is None, "not below the offset that counts"
                assert find_by_time(log, wanted, want.offset + 1) == want


def test_the_latest_record_is_found_and_of_several_the_first() -> None:
    for seed in range(12):
        log = mixed(seed)
        assert find_max_time(log) == max(every(log), key=lambda x: (x.timestamp_ms, -x.offset))
    log = new_log(memory_disk().session())
    assert find_max_time(log) is None
    for _ in range(30):
        put(log, at_times(5, 9, 9, 1))
    assert len(log.bases) > 1
    assert find_max_time(log) == TimeOffset(NOW + 9, 1, 0)


def test_records_of_a_topic_with_append_time_have_the_time_of_their_batch() -> None:
    log = new_log(memory_disk().session())
    for at in (3, 7, 5):
        data = at_times(1, 2)
        header = b.parse_header(data)
        new = header._replace(attributes=header.attributes | b.TIMESTAMP_TYPE_BIT, max_timestamp=NOW + at)
        b.stamp_times(data, 0, new)
        put(log, data)
    assert find_by_time(log, NOW + 4, 9) == TimeOffset(NOW + 7, 2, 0)
    assert find_max_time(log) == TimeOffset(NOW + 7, 2, 0)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_batch_that_claims_a_later_time_than_its_records_have_is_passed(codec: Codec) -> None:
    """Without ``ottla.validate.records`` a client's claim stands in the header."""
    log = new_log(memory_disk().session())
    data = at_times(1, 4, 2, codec=codec)
    b.stamp_times(data, 0, b.parse_header(data)._replace(max_timestamp=NOW + 50))
    put(log, data)
    put(log, at_times(30, codec=codec))
    assert find_by_time(log, NOW + 20, 4) == TimeOffset(NOW + 30, 3, 0)
    assert find_by_time(log, NOW + 40, 4) is None
    assert find_max_time(log) == TimeOffset(NOW + 4, 1, 0), "as the index has it"


def test_damage_on_the_way_is_told() -> None:
    memory = memory_disk()
    log = new_log(memory.session())
    put(log, at_times(*range(50)))
    log.close_files()
    path = f"{log.directory}/{0:020d}.log"
    whole = bytes(memory.files[path].data)
    for cut in (b.HEADER_BYTES + 40, b.HEADER_BYTES - 10):
        memory.files[path].data[:] = whole[:cut]
        with pytest.raises(WireError):
            find_by_time(log, NOW + 49, 50)
        assert find_max_time(log) is None


# ---------------------------------------------------------------- in pauses


def test_a_look_up_pauses_among_segments_headers_and_records() -> None:
    log = new_log(memory_disk().session(), LogSettings(segment_bytes=400))
    fill(log, 90)
    segments = len(log.bases)
    assert segments > 40
    count, found = pauses(finding_by_time(log, NOW + 269, 270))
    assert found is not None
    assert count >= segments - 2
    assert pauses(finding_max_time(log))[0] >= segments

    log = new_log(memory_disk().session(), LogSettings())
    for _ in range(1500):
        put(log, at_times(5))  # the time does not grow: the index says nothing of them
    put(log, at_times(9))
    count, found = pauses(finding_by_time(log, NOW + 9, 1501))
    assert found == TimeOffset(NOW + 9, 1500, 0)
    assert count >= log.size_bytes // (16 * 1024) - 1


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_look_up_pauses_within_a_large_batch(codec: Codec) -> None:
    log = new_log(memory_disk().session(), LogSettings())
    put(log, at_times(*([0] * 9_000), 7, codec=codec))
    for steps in (finding_by_time(log, NOW + 7, 9_001), finding_max_time(log)):
        count, found = pauses(steps)
        assert found == TimeOffset(NOW + 7, 9_000, 0)
        assert count >= 4


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_many_look_ups_in_a_batch_that_unpacks_to_much_keep_little_between_two_pauses(codec: Codec) -> None:
    """Each connection may have one: a hundred of them kept a hundred times what a batch unpacks to."""
    log = new_log(memory_disk().session(), LogSettings())
    items = [r.NewRecord(b"k", bytes(4 << 20), NOW + t) for t in (0, 0, 0, 7)]
    put(log, bytearray(r.build(items, codec=codec)))
    waiting = [finding_by_time(log, NOW + 7, 4) for _ in range(10)] + [finding_max_time(log) for _ in range(10)]
    found = []
    tracemalloc.start()
    try:
        while waiting:
            for steps in waiting[:]:
                try:
                    next(steps)
                except StopIteration as done:
                    found.append(done.value)
                    waiting.remove(steps)
        assert tracemalloc.get_traced_memory()[1] < 20 * (512 << 10)
    finally:
        tracemalloc.stop()
    assert found == [TimeOffset(NOW + 7, 3, 0)] * 20


@pytest.mark.parametrize("codec", list(Codec))
def test_a_look_up_says_that_it_keeps_much_before_it_does(codec: Codec) -> None:
    """Beyond a mebibyte it counts what a codec keeps of it; snappy has a whole block at once."""
    for size_bytes in (900 << 10, 3 << 20):
        log = new_log(memory_disk().session(), LogSettings(max_message_bytes=1 << 30))
        items = [r.NewRecord(b"k", bytes(size_bytes), NOW), r.NewRecord(b"k", b"v", NOW + 7)]
        raw = r.build(items, codec=codec)
        if codec is Codec.SNAPPY:
            header = b.parse_header(raw)
            raw = b.pack_header(header, snappy.compress(bytes(r.body(raw, header))))
        put(log, bytearray(raw))
        for steps in (finding_by_time(log, NOW + 7, 9), finding_max_time(log)):
            heavy = list(steps)
            assert any(heavy) is (size_bytes > FREE_BYTES and codec is not Codec.NONE)
            if any(heavy):
                free = 0 if codec is Codec.SNAPPY else FREE_BYTES // r.PIECE_BYTES
                assert heavy.index(True) <= free + 2
                assert all(heavy[heavy.index(True) : -1])


def test_what_happens_in_a_pause_is_seen() -> None:
    """Segments go, the log is cut or goes on: no file is opened that is gone, and what is found was there."""
    ends = set()
    for seed in range(150):
        dice = random.Random(seed)
        log = mixed(seed)
        before = {(x.timestamp_ms, x.offset) for x in every(log)}
        wanted = NOW + dice.randrange(-300, 700)
        steps = finding_by_time(log, wanted, 2**62) if dice.random() < 0.8 else finding_max_time(log)
        for _ in range(dice.randrange(12)):
            next(steps, None)
        what = dice.choice(["drop", "cut", "append", "roll", "close", "start over"])
        if what == "drop":
            log.raise_start(dice.choice(log.bases))
            log.drop_below_start(NOW)
            remove_files(log.disk, log.take_retired(NOW + 10**9))
        elif what == "cut":
            log.truncate_to(dice.randrange(log.log_end_offset), NOW)
        elif what == "append":
            put(log, at_times(1000))
        elif what == "roll":
            log.roll(NOW)
        elif what == "start over":
            log.start_over_at(500, NOW)
        else:
            log.close()
        try:
            found = pauses(steps)[1]
        except WireError:
            ends.add("cut in the middle of it")
            assert what in ("cut", "start over")
            continue
        ends.add("found" if found else "nothing")
        if found is not None:
            assert (found.timestamp_ms, found.offset) in before | {(NOW + 1000, log.log_end_offset - 1)}
    assert {"found", "nothing"} <= ends
