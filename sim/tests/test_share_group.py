"""Share group of a simulated run: states its coordinator may have written, and pending records."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.share_partitions.in_flight import RecordState
from ottla.broker.share_state import share_group_offsets
from ottla.broker.share_state.records import encode
from ottla.broker.share_state.state_batches import PersisterStateBatch
from ottla.wire.record_batch.records import Record
from sim.checkers.acquisition_locks import ACCEPT, REJECT, RELEASE, AcquisitionLocks
from sim.checkers.delivery_checker import DeliveryChecker
from sim.workload.groups.share_group import find_unearned_states, has_pending_records

TOPIC_ID = b"s" * 16
S = ("s0", 0)


def stored(*steps: tuple[int, list[PersisterStateBatch]]) -> list[Record]:
    """Return records of the state topic: start offsets with their state batches."""
    at, out = share_group_offsets.SharePartitionKey("g", TOPIC_ID, 0), []
    for offset, (start, batches) in enumerate(steps):
        made = share_group_offsets.snapshot_record if offset == 0 else share_group_offsets.update_record
        key, value = encode(made(at, share_group_offsets.ShareGroupOffset(0, 0, 0, start, 0, tuple(batches))))
        out.append(Record(offset, 0, key, value, []))
    return out


@pytest.mark.parametrize(
    ("acknowledged", "steps", "flagged"),
    [
        ({0: {ACCEPT}}, [(-1, []), (0, [PersisterStateBatch(0, 0, 1, RecordState.ACKNOWLEDGED)]), (1, [])], 0),
        ({}, [(-1, []), (0, [PersisterStateBatch(0, 0, 1, RecordState.ACKNOWLEDGED)])], 1),
        ({0: {REJECT}}, [(0, [PersisterStateBatch(0, 0, 1, RecordState.ARCHIVED)])], 0),
        ({0: {RELEASE}}, [(0, [PersisterStateBatch(0, 0, 3, RecordState.ARCHIVED)]), (1, [])], 0),
        ({0: {RELEASE}}, [(0, [PersisterStateBatch(0, 0, 2, RecordState.ARCHIVED)])], 1),
        ({}, [(0, []), (2, [])], 2),
        ({}, [(0, [PersisterStateBatch(0, 1, 1, RecordState.AVAILABLE)]), (2, [])], 2),
    ],
    ids=["accepted", "accepted by nobody", "rejected", "the limit", "before the limit", "passed over", "still free"],
)
def test_find_unearned_states_with_state_without_cause_returns_it(
    acknowledged: dict[int, set[int]], steps: Any, flagged: int
) -> None:
    locks = AcquisitionLocks(DeliveryChecker(), "g", 3, dict, lambda host: 0.0, lambda: 0.0)
    locks.acknowledgements = {(S, offset): kinds for offset, kinds in acknowledged.items()}
    assert len(list(find_unearned_states(stored(*steps), {TOPIC_ID: "s0"}, locks))) == flagged


@pytest.mark.parametrize(
    ("start_offset", "lag", "begin", "end", "flagged"),
    [
        (9, 0, 0, 9, False),
        (0, 0, 0, 9, False),
        (0, 1, 0, 9, True),
        (-1, -1, 0, 9, True),
        (-1, -1, 0, 0, False),
        (4, 5, 4, 9, True),
        (0, 1, 9, 9, False),
        (0, 5, 5, 9, False),
        (0, 6, 5, 9, True),
    ],
)
def test_has_pending_records_with_lag_in_remaining_log_returns_true(
    start_offset: int, lag: int, begin: int, end: int, flagged: bool
) -> None:
    assert has_pending_records(start_offset, lag, begin, end) == flagged
