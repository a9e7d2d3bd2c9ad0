"""Acquisition of the records of a share partition by a member.

A fetch starts at the next available record; what it reads may cover in-flight batches, available or not, and new
records after them. Whole record batches are acquired, even if that exceeds the requested number of records, unless the
limit is strict (KIP-1206). Records that failed often are acquired in ever smaller numbers, at last one by one, so that
a record that cannot be processed does not affect the others.

Source: ``SharePartition.acquire`` (apache/kafka 4.3.1), KIP-932, KIP-1206.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.config.limits import MAX_SHARE_BATCH_CUTS
from ottla.broker.share_partitions.in_flight import InFlightBatch, InFlightState, RecordState
from ottla.broker.share_partitions.share_partition import SharePartition

MIN_THROTTLED_DELIVERY_COUNT = 2


class AcquiredRange(NamedTuple):
    """Range of records acquired by a member, with their delivery count; offsets inclusive."""

    first_offset: int
    last_offset: int
    delivery_count: int


class AcquireRequest(NamedTuple):
    """Parameters of an acquisition: member, maximum number of records, and target number of records per batch."""

    member_id: str
    max_records: int
    batch_size: int
    is_record_limit_strict: bool = False
    """True if ``max_records`` must not be exceeded."""


class FetchedOffsets(NamedTuple):
    """Offsets of a read: fetch offset, and first and last offset (inclusive) of each record batch, ascending."""

    fetch_offset: int
    batch_offsets: Sequence[tuple[int, int]]
    aborted_offsets: Sequence[tuple[int, int]] = ()
    """First and last offset (inclusive) of each batch of aborted transactions, ascending; only for read_committed."""


def acquire_records(
    share: SharePartition, request: AcquireRequest, fetched: FetchedOffsets, now_ms: int
) -> list[AcquiredRange]:
    """Acquire available and new records of a read for a member; return the acquired ranges, empty if there are none.

    The acquisition locks expire ``lock_duration_ms`` after ``now_ms`` (monotonic clock). Records of aborted
    transactions are archived instead. The state is changed at once and not written: a new leader may deliver the
    records again.
    """
    if request.max_records <= 0 or not fetched.batch_offsets or fetched.batch_offsets[-1][1] < share.start_offset:
        return []
    last, most = _acquisition_bounds(share, request.max_records, fetched)
    if most <= 0:
        return []
    out = _RecordAcquisition(share, request, fetched, last, most, now_ms).run()
    if fetched.aborted_offsets:
        out = _archive_aborted(share, out, fetched.aborted_offsets)
    if not out:
        share.advance_past_archived()
    return out


def _acquisition_bounds(share: SharePartition, max_records: int, fetched: FetchedOffsets) -> tuple[int, int]:
    """Return the last offset (inclusive) that may be acquired, and how many records: at most ``max_records``.

    The number is 0 or negative if no record may be acquired.
    """
    last = fetched.batch_offsets[-1][1]
    most = min(max_records, share.limits.max_record_locks - share.in_flight_count)
    if most <= 0 and fetched.fetch_offset <= share.end_offset:  # no new records, but available ones may be acquired
        most = min(max_records, share.end_offset - fetched.fetch_offset + 1)
        last = min(last, share.end_offset)
    return last, most


class _RecordAcquisition:
    """Acquisition of records for one member, from one read."""

    def __init__(
        self, share: SharePartition, request: AcquireRequest, fetched: FetchedOffsets, last: int, most: int, now_ms: int
    ) -> None:
        self._share = share
        self._request = request
        self._read = fetched.batch_offsets
        self._from = fetched.fetch_offset
        self._last = last
        self._most = most
        self._lock_ms = now_ms + share.limits.lock_duration_ms
        self._limit = share.limits.max_delivery_count
        self._throttled_at = max(MIN_THROTTLED_DELIVERY_COUNT, -(-self._limit // 2))
        self._out: list[AcquiredRange] = []
        self._count = 0

    def run(self) -> list[AcquiredRange]:
        share, base = self._share, self._read[0][0]
        self._archive_gap_before(base)
        if base > self._last:  # the in-flight limit is reached: the read is after the end offset
            return self._out
        first, preceding = base, share.last_batch_at_or_before(base)
        if preceding is None:
            first = max(base, share.start_offset)
        elif preceding.last_offset >= base:
            first = preceding.first_offset
        known = share.batches_between(min(base, first), self._last)
        if not known:
            self._acquire_new(first, self._last)
            return self._out
        if self._acquire_cached(known, first) and self._count < self._most and known[-1].last_offset < self._last:
            self._acquire_new(known[-1].last_offset + 1, self._last)
        if self._out:
            share.advance_gap(self._out[-1].last_offset + 1)
        return self._out

    def _archive_gap_before(self, base: int) -> None:
        """Archive available records between fetch offset and ``base``, the first offset that was read.

        They were compacted or deleted.
        """
        share = self._share
        if not len(share) or self._from >= base:
            return
        preceding = share.last_batch_at_or_before(self._from)
        begin = preceding.first_offset if preceding is not None and preceding.last_offset >= self._from else self._from
        if share.archive_records(
            self._from, base, share.batches_between(begin, base - 1), RecordState.AVAILABLE, counts=True
        ):
            share.mark_available()

    # ------------------------------------------------------------------ in-flight records

    def _acquire_cached(self, known: list[InFlightBatch], first: int) -> bool:
        """Acquire available records of the in-flight batches ``known``, and new ones in gaps from ``first`` on.

        The limit of the request applies.
        Return False if no new record may be acquired after them, because a batch that failed often is delivered alone.
        """
        gap = first
        for batch in known:
            if self._count >= self._most:
                break
            if self._share.has_gap:
                if gap < batch.first_offset:
                    self._acquire_new(gap, batch.first_offset - 1)
                gap = batch.last_offset + 1
                if self._count >= self._most:
                    break
            suspect = self._is_throttled(batch)
            if suspect and self._count:
                return False
            before = self._count
            if self._is_acquired_singly(batch) or suspect:
                self._acquire_singly(batch)
                if suspect and self._count > before:
                    return False
            elif batch.batch_state is not None and batch.batch_state.is_available:
                batch.batch_state.acquire(self._request.member_id, self._lock_ms)
                self._out.append(AcquiredRange(batch.first_offset, batch.last_offset, batch.batch_state.delivery_count))
                self._count += len(batch)
        return True

    def _is_acquired_singly(self, batch: InFlightBatch) -> bool:
        if batch.batch_state is None:
            return True
        if batch.first_offset < self._read[0][0] or batch.last_offset > self._last:
            return True
        return self._request.is_record_limit_strict and len(batch) > self._most - self._count

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Return True if a batch failed so often that its records must not be delivered with those of other batches."""
        if batch.batch_state is not None:
            return batch.batch_state.is_available and batch.batch_state.delivery_count >= self._throttled_at
        free = (run.state for run in batch.runs(self._read[0][0], self._last) if run.state.is_available)
        return max((state.delivery_count for state in free), default=0) >= self._throttled_at

    def _acquire_singly(self, batch: InFlightBatch) -> None:
        if batch.batch_state is not None:
            if not batch.batch_state.is_available:
                return
            batch.track_offset_states()
        acquired: list[AcquiredRange] = []
        taken, most, wanted = 0, -1, self._most - self._count
        alone = self._limit > MIN_THROTTLED_DELIVERY_COUNT
        for first, last, state in batch.runs(self._read[0][0], self._last):
            if not state.is_available:
                continue
            failed = state.delivery_count
            is_last_try = alone and failed == self._limit - 1
            if is_last_try and taken:
                break
            if failed >= self._throttled_at and most < 0:
                most = max(1, len(batch) >> (failed - self._throttled_at + 1))
            left = 1 if is_last_try else last - first + 1
            if most > taken:
                left = min(left, most - taken)
            if self._request.is_record_limit_strict:
                left = min(left, wanted - taken)
            last = min(last, first + left - 1)
            if not self._share.split_runs_at(batch, (first, last + 1), 2 * MAX_SHARE_BATCH_CUTS):
                break
            own = batch.state_at(first)
            own.acquire(self._request.member_id, self._lock_ms)
            if acquired and acquired[-1].last_offset + 1 == first and acquired[-1].delivery_count == own.delivery_count:
                acquired[-1] = acquired[-1]._replace(last_offset=last)
            else:
                acquired.append(AcquiredRange(first, last, own.delivery_count))
            taken += last - first + 1
            if is_last_try or taken == most or (self._request.is_record_limit_strict and taken == wanted):
                break
        self._out += acquired
        self._count += taken

    # ------------------------------------------------------------------ new records

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire new records from ``first`` on, up to the end of the record batch in which the limit is reached.

        They become in-flight batches, and the end offset advances. ``last``: last offset of the read, inclusive.
        """
        share, most = self._share, self._most - self._count
        if not len(share):
            first = max(first, share.end_offset)
        if most < last - first + 1:
            wanted = self._batch_end(first + most - 1)
            last = min(wanted, last) if share.has_gap else wanted
        acquired = self._split_into_batches(first, last, most)
        if share.first_batch.first_offset == first:
            share.start_offset = first
        share.end_offset = max(share.end_offset, last)
        if self._request.is_record_limit_strict:
            last = acquired[0].last_offset
        share.advance_gap(last + 1)
        self._out += acquired
        self._count += last - first + 1

    def _batch_end(self, offset: int) -> int:
        for base, end in reversed(self._read):
            if base <= offset:
                return max(end, offset)
        return offset

    def _split_into_batches(self, first: int, last: int, most: int) -> list[AcquiredRange]:
        size = max(self._request.batch_size, 1)
        if self._request.is_record_limit_strict:
            if last - first + 1 > most:
                return [self._acquire_strictly(first, last, most)]
            return [self._add_new_batch(first, last)]
        out = []
        if last - first + 1 > size:
            for base, _ in self._read:
                if base > last:
                    break
                if base - first >= size:
                    out.append(self._add_new_batch(first, base - 1))
                    first = base
        return [*out, self._add_new_batch(first, last)]

    def _add_new_batch(self, first: int, last: int) -> AcquiredRange:
        state = InFlightState(RecordState.ACQUIRED, 1, self._request.member_id, self._lock_ms)
        self._share.add_batch(InFlightBatch(first, last, state))
        return AcquiredRange(first, last, 1)

    def _acquire_strictly(self, first: int, last: int, most: int) -> AcquiredRange:
        """Add records ``first`` to ``last`` as a batch, and acquire only the first ``most``; return their range."""
        batch = InFlightBatch(first, last, InFlightState(RecordState.AVAILABLE, 0))
        batch.track_offset_states()
        self._share.add_batch(batch)
        self._share.split_run(batch, first, first + most - 1).acquire(self._request.member_id, self._lock_ms)
        self._share.mark_available()
        return AcquiredRange(first, first + most - 1, 1)


def _archive_aborted(
    share: SharePartition, acquired: list[AcquiredRange], aborted: Sequence[tuple[int, int]]
) -> list[AcquiredRange]:
    """Archive the acquired records of aborted transactions; return a new list of the ranges without them.

    ``aborted``: first and last offset (inclusive) of each batch of aborted transactions, ascending.
    """
    for base, last in aborted:
        preceding = share.last_batch_at_or_before(base)  # None: the start offset lies inside that batch
        first = base if preceding is None else preceding.first_offset
        share.archive_records(base, last + 1, share.batches_between(first, last), RecordState.ACQUIRED, counts=True)
    out = []
    for row in acquired:
        begin = row.first_offset
        for base, last in aborted:
            if last < begin or base > row.last_offset:
                continue
            if begin < base:
                out.append(row._replace(first_offset=begin, last_offset=base - 1))
            begin = last + 1
        if begin <= row.last_offset:
            out.append(row._replace(first_offset=begin))
    return out
