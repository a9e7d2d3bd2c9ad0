"""Steps of a transaction at its coordinator; a simulation may kill the coordinator at each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from ottla.broker.transactions.events import MarkersWritten
from ottla.broker.transactions.pending_transition import PendingTransition
from ottla.broker.transactions.records import TransactionRecord
from ottla.broker.transactions.state_machine import TransactionStateMachine
from ottla.broker.transactions.transaction_metadata import S


class TransactionStep(Enum):
    """Step of a transaction. *Written*: its record is in the leader's log, uncommitted, and may be lost."""

    ID_WRITTEN = "id-written"
    OPEN_WRITTEN = "open-written"
    OPEN = "open"
    DECIDED_WRITTEN = "decided-written"
    DECIDED = "decided"
    SOME_MARKERS_WRITTEN = "some-know"
    """At least one partition has its marker."""
    COMPLETE_WRITTEN = "complete-written"
    COMPLETE = "complete"


WRITTEN = {
    S.EMPTY: TransactionStep.ID_WRITTEN,
    S.ONGOING: TransactionStep.OPEN_WRITTEN,
    S.PREPARE_COMMIT: TransactionStep.DECIDED_WRITTEN,
    S.PREPARE_ABORT: TransactionStep.DECIDED_WRITTEN,
    S.COMPLETE_COMMIT: TransactionStep.COMPLETE_WRITTEN,
    S.COMPLETE_ABORT: TransactionStep.COMPLETE_WRITTEN,
}
COMMITTED = {
    S.ONGOING: TransactionStep.OPEN,
    S.PREPARE_COMMIT: TransactionStep.DECIDED,
    S.PREPARE_ABORT: TransactionStep.DECIDED,
    S.COMPLETE_COMMIT: TransactionStep.COMPLETE,
    S.COMPLETE_ABORT: TransactionStep.COMPLETE,
}
StepListener = Callable[[int, str, TransactionStep], None]
"""Function called with the coordinator's node id, the transactional id and the step."""


@contextmanager
def observe_steps(on_step: StepListener) -> Iterator[None]:
    """Call ``on_step`` for each step of each transaction at every coordinator, within the ``with`` block.

    Methods of `TransactionStateMachine` are replaced meanwhile; ``on_step`` is called right after the step.
    """
    replay, arrived, marked = (
        TransactionStateMachine.replay,
        TransactionStateMachine._on_committed,
        TransactionStateMachine._on_markers_written,
    )

    def observe(machine: TransactionStateMachine, name: str, step: TransactionStep | None) -> None:
        if step is not None:
            on_step(machine._marker_sender._dependencies.node_id, name, step)

    def on_replay(self: TransactionStateMachine, offset: int, record: TransactionRecord) -> None:
        replay(self, offset, record)
        pending = self.pending_transitions.get(record.transactional_id)
        if record.transaction is not None and pending is not None and pending.after is record.transaction:
            observe(self, record.transactional_id, WRITTEN.get(record.transaction.state))

    def on_arrival(self: TransactionStateMachine, name: str, pending: PendingTransition, *rest: Any) -> None:
        was_written, after = pending.is_written, pending.after
        arrived(self, name, pending, *rest)
        if was_written and after is not None:
            observe(self, name, COMMITTED.get(after.state))

    def on_marked(self: TransactionStateMachine, event: MarkersWritten) -> Any:
        found = marked(self, event)
        if event.pending_transition.remaining_partitions:
            observe(self, event.transactional_id, TransactionStep.SOME_MARKERS_WRITTEN)
        return found

    planted: Any = TransactionStateMachine
    planted.replay, planted._on_committed, planted._on_markers_written = on_replay, on_arrival, on_marked
    try:
        yield
    finally:
        planted.replay, planted._on_committed, planted._on_markers_written = replay, arrived, marked
