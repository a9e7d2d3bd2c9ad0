"""Records of a read_committed consumer. Source: ``CompletedFetch.java`` (apache/kafka 4.3.1)."""

from __future__ import annotations

from ottla.client.record_decoding import decode_committed
from ottla.wire.record_batch import batch_header, records
from ottla.wire.record_batch.control_record import ControlRecordType, EndTransactionMarker, build_end_transaction_batch


def make_batches(*steps: tuple[str, int]) -> bytes:
    """Return batches of one record each: ``data`` in a transaction, ``plain``, and transaction markers."""
    out = b""
    for offset, (step, pid) in enumerate(steps):
        if step in ("abort", "commit"):
            kind = ControlRecordType.ABORT if step == "abort" else ControlRecordType.COMMIT
            raw = bytearray(build_end_transaction_batch(EndTransactionMarker(kind, 0), pid, 0, 5))
        else:
            attributes = batch_header.TRANSACTIONAL_BIT if step == "data" else 0
            producer = {"producer_id": pid, "producer_epoch": 0, "base_sequence": 0}
            raw = bytearray(
                records.build_batch([records.NewRecord(None, b"%d" % offset, 5)], attributes=attributes, **producer)
            )
        batch_header.set_offset_and_epoch(raw, 0, offset, 0)
        out += bytes(raw)
    return out


BATCHES = make_batches(
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


def test_decode_committed_omits_records_of_aborted_transactions_only() -> None:
    found = decode_committed(BATCHES, 0, ABORTED)
    assert [x.value for x in found.records] == [b"1", b"2", b"4", b"5"]
    assert found.next_offset == 10, "offset after the markers"


def test_decode_committed_without_aborted_transactions_omits_markers() -> None:
    assert [x.offset for x in decode_committed(BATCHES, 2).records] == [2, 4, 5, 8]


def test_decode_committed_only_aborted_records_advances_next_offset() -> None:
    found = decode_committed(make_batches(("data", 1), ("data", 1)), 0, [(1, 0)])
    assert (found.records, found.next_offset) == ([], 2)


def test_decode_committed_empty_data_keeps_next_offset() -> None:
    assert decode_committed(b"", 7, ABORTED) == ([], 7, frozenset())


def test_decode_committed_marks_records_with_log_append_time() -> None:
    raw = bytearray(
        records.build_batch([records.NewRecord(None, b"a", 5), records.NewRecord(None, b"b", 6)], attributes=8)
    )
    batch_header.set_offset_and_epoch(raw, 0, 2, 0)
    found = decode_committed(make_batches(("plain", 3), ("plain", 3)) + bytes(raw), 0)
    assert [(x.offset, x.offset in found.append_time_offsets) for x in found.records] == [
        (0, False),
        (1, False),
        (2, True),
        (3, True),
    ]
