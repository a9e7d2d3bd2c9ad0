"""Records of internal topics that no coordinator writes: the node stays alive, and the other shards serve.

``OTTLA_INVALID_RECORDS`` is the number of drawn records (20,000 in the campaign); ``OTTLA_INVALID_SEED`` the first
seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import trio

from devtools.fuzzing import coordinator_fixtures as stages
from devtools.fuzzing import invalid_records as drawn
from ottla.broker.coordinator import errors
from ottla.broker.transactions import records as transaction_records
from ottla.broker.transactions.transaction_metadata import TransactionState

RECORDS = int(os.environ.get("OTTLA_INVALID_RECORDS", "1500"))
SEED = int(os.environ.get("OTTLA_INVALID_SEED", "1"))
TOPICS: dict[str, tuple[Callable[[trio.Nursery], drawn.CoordinatorFixture], drawn.InternalTopic, float]] = {
    "__consumer_offsets": (stages.group_coordinators, drawn.GROUPS, 0.6),
    "__transaction_state": (stages.transaction_coordinators, drawn.TRANSACTIONS, 0.2),
    "__share_group_state": (stages.share_coordinators, drawn.SHARE_STATE, 0.2),
}
pytestmark = pytest.mark.invalid_state


@pytest.mark.parametrize("topic", TOPICS)
def test_coordinator_load_of_invalid_records_stops_no_node_and_no_other_shard(
    topic: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    make, of_topic, share = TOPICS[topic]
    found, seed = drawn.FuzzingResult(), SEED
    monkeypatch.setattr(errors, "report_failure", found.count_failure)
    while found.records < RECORDS * share:
        try:
            drawn.run_seed(seed, make, of_topic, found)
        except BaseException as error:
            error.add_note(f"seed {seed} of {topic}")
            raise
        seed += 1
    record_property("drawn", f"{found.records} records, {found.cases} logs, {found.invalid} not loaded")
    assert not found.closed, "handlers raised"
    assert not found.failed, "state machines raised"


def test_invalid_records_detect_coordinator_without_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = drawn.FuzzingResult()
    monkeypatch.setattr(errors, "report_failure", found.count_failure)
    monkeypatch.setattr(transaction_records, "_check", lambda value: TransactionState(value.transaction_status % 8))
    for seed in range(1, 41):
        drawn.run_seed(seed, stages.transaction_coordinators, drawn.TRANSACTIONS, found)
    assert found.failed
