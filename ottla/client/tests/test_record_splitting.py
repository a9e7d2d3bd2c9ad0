"""Division of records into batches, and of batches that are too large for their topic."""

from __future__ import annotations

import pytest

from ottla.client.record_splitting import BATCH_BYTES, append_in_batches, split_records
from ottla.client.tests.fake_brokers import run_coroutine
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import NewRecord, build_batch


class LimitedLog:
    """Log that rejects batches above a number of bytes."""

    def __init__(self, max_bytes: int, code: ErrorCode = ErrorCode.MESSAGE_TOO_LARGE) -> None:
        self.max_bytes, self.code = max_bytes, code
        self.batches: list[list[NewRecord]] = []

    async def append(self, items: list[NewRecord]) -> int:
        if len(build_batch(items)) > self.max_bytes:
            raise ProtocolError(self.code)
        self.batches.append(items)
        return 0


def numbered_records(count: int, size_bytes: int) -> list[NewRecord]:
    return [NewRecord(b"%d" % number, bytes(size_bytes), 0) for number in range(count)]


def test_split_records_counts_headers_and_leaves_a_large_record_alone() -> None:
    large = NewRecord(None, bytes(BATCH_BYTES), 0)
    wide = [NewRecord(None, None, 0, (("h", bytes(300_000)),)) for _ in range(2)]
    assert [len(group) for group in split_records([*wide, large, *numbered_records(3, 10)])] == [1, 1, 1, 3]
    assert list(split_records([])) == [[]]


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE])
def test_append_halves_batches_that_are_too_large_and_keeps_their_order(code: ErrorCode) -> None:
    log = LimitedLog(20_000, code)
    records = numbered_records(100, 1000)
    run_coroutine(append_in_batches(records, log.append))
    assert [record for batch in log.batches for record in batch] == records
    assert {len(batch) for batch in log.batches} == {12, 13}


def test_append_of_a_single_record_that_is_too_large_raises() -> None:
    log = LimitedLog(500)
    records = [*numbered_records(2, 10), NewRecord(None, bytes(1000), 0), *numbered_records(2, 10)]
    with pytest.raises(ProtocolError, match="MESSAGE_TOO_LARGE"):
        run_coroutine(append_in_batches(records, log.append))
    assert [record for batch in log.batches for record in batch] == records[:2]


def test_append_of_another_error_is_not_repeated() -> None:
    log = LimitedLog(1, ErrorCode.INVALID_RECORD)
    with pytest.raises(ProtocolError, match="INVALID_RECORD"):
        run_coroutine(append_in_batches(numbered_records(2, 10), log.append))
