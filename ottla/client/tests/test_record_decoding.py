"""What a reader of committed transactions sees. Source: ``CompletedFetch.java`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from ottla.client.record_decoding import decode_committed
from ottla.wire.record_batch import batch_header as b
from ottla.wire.record_batch import records as r
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, build_end_transaction_batch


def laid(*steps: tuple[str, int]) -> bytes:
    """Batches of one record each: ``data`` within a producer's transaction, ``plain``, and the ends."""
    out = b""
    for offset, (what, pid) in enumerate(steps):
        if what in ("abort", "commit"):
            kind = ControlRecordType.ABORT if what == "abort" else ControlRecordType.COMMIT
            raw = bytearray(build_end_transaction_batch(EndTransactionMarker(kind, 0), pid, 0, 5))
        else:
            attributes = b.TRANSACTIONAL_BIT if what == "data" else 0
            whose = {"producer_id": pid, "producer_epoch": 0, "base_sequence": 0}
            raw = bytearray(r.build_batch([r.NewRecord(None, b"%d" % offset, 5)], attributes=attributes, **whose))
        b.set_offset_and_epoch(raw, 0, offset, 0)
        out += bytes(raw)
    return out


STORY = laid(
    ("data", 1),  # 0, aborted
    ("data", 2),  # 1
    ("plain", 3),  # 2
    ("abort", 1),  # 3
    ("data", 1),  # 4
    ("data", 2),  # 5
    ("commit", 2),  # 6
    ("commit", 1),  # 7
    ("data", 1),  # 8, aborted
    ("abort", 1),  # 9
)
ABORTED = [(1, 8), (1, 0)]


def test_aborted_records_are_left_out_and_later_ones_of_the_same_producer_are_not() -> None:
    found = decode_committed(STORY, 0, ABORTED)
    assert [x.value for x in found.records] == [b"1", b"2", b"4", b"5"]
    assert found.next_offset == 10, "behind the markers"


def test_without_transactions_to_leave_out_everything_is_there_but_markers() -> None:
    assert [x.offset for x in decode_committed(STORY, 2).records] == [2, 4, 5, 8]


def test_nothing_but_aborted_records_is_read_on_behind_them() -> None:
    found = decode_committed(laid(("data", 1), ("data", 1)), 0, [(1, 0)])
    assert (found.records, found.next_offset) == ([], 2)


def test_nothing_at_all_stays_where_it_is() -> None:
    assert decode_committed(b"", 7, ABORTED) == ([], 7)
