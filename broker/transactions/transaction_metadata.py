"""States of a transaction, their valid transitions, and the state of a transactional id.

Source: ``TransactionState.java``, ``TransactionMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

TopicPartition = tuple[str, int]
NO_PRODUCER_ID = -1
NO_EPOCH = -1
MAX_PRODUCER_EPOCH = 32767
NO_TIMEOUT_MS = 2**31 - 1
"""Timeout of a transaction with two-phase commit, which the coordinator never aborts (KIP-939)."""
EPOCH_BUMP_VERSION = 2
"""transaction.version from which every transaction has a producer epoch of its own (KIP-890)."""
FLEXIBLE_RECORDS_VERSION = 1
"""transaction.version from which records may have tagged fields that older brokers do not know."""


class TransactionState(IntEnum):
    """State of a transaction; the value is that of the record. DEAD and PREPARE_EPOCH_FENCE are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def state_name(self) -> str:
        """Name of the state in responses, such as ``CompleteCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


S = TransactionState
STATES_BY_NAME: Mapping[str, TransactionState] = {state.state_name: state for state in TransactionState}
VALID_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = {
    S.EMPTY: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.ONGOING: frozenset({S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.ONGOING}),
    S.PREPARE_ABORT: frozenset({S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: frozenset({S.PREPARE_COMMIT}),
    S.COMPLETE_ABORT: frozenset({S.PREPARE_ABORT}),
    S.DEAD: frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}),
    S.PREPARE_EPOCH_FENCE: frozenset({S.ONGOING}),
}
"""Valid previous states of each state; the diagram in the documentation is drawn from this."""
PREPARED_STATES = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""States in which the end of the transaction is decided, and markers are being written."""
UNPERSISTED_STATES = frozenset({S.DEAD, S.PREPARE_EPOCH_FENCE})
"""States that are never in the log: a tombstone replaces DEAD.

PREPARE_EPOCH_FENCE is followed by an abort before a write.
"""
IDLE_STATES = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
"""States without an open transaction, in which a new one may start or the transactional id may expire."""


class TransactionMetadata(NamedTuple):
    """Immutable state of a transactional id; a transition creates another one. Times in ms since the epoch."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    """Time at which the first partition was added; -1 if none was added since initialization."""
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """Producer id before this transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """Producer id after completion, if the epochs are exhausted; else -1."""
    last_producer_epoch: int = NO_EPOCH
    """Epoch before the last bump by the producer; never written, so -1 after a failover of the coordinator."""
    client_transaction_version: int = 0
    """transaction.version that the producer uses."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """True if no further epoch can be assigned to a producer: the largest epoch is reserved for fencing."""
        return is_epoch_exhausted(self.producer_epoch)

    def transition_to(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """Return a copy in ``state``, with the fields ``changes`` and this producer id as ``previous_producer_id``.

        This object is unchanged. Its state must be a valid previous state of ``state``.
        """
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state.state_name} -> {state.state_name}"
        made = self._replace(state=state, previous_producer_id=self.producer_id, **changes)
        assert made.producer_id >= 0, made
        assert made.producer_epoch >= 0, made
        return made


def is_epoch_exhausted(epoch: int) -> bool:
    """Return True if no further epoch can be assigned: at most the largest, 32767, follows, which is for fencing."""
    return epoch >= MAX_PRODUCER_EPOCH - 1
