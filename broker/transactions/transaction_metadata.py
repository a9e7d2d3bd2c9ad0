"""The states of a transaction, which may follow which, and what is known of one transactional id.

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
"""The timeout of a transaction in two phases, which no timer ends (KIP-939)."""
EPOCH_BUMP_VERSION = 2
"""The transaction.version from which on every transaction has an epoch of its own (KIP-890)."""
FLEXIBLE_RECORDS_VERSION = 1
"""The transaction.version from which on records may hold fields that older brokers do not know."""


class TransactionState(IntEnum):
    """As it stands in the log. The last two never do: a tombstone stands for DEAD, and a fence is only on its way."""

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
        """The name users see: ``CompleteCommit``."""
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
"""After which states a state may come; the diagram in the documentation is drawn from this."""
PREPARED_STATES = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""States in which the end of the transaction is decided, and markers are being written."""
UNPERSISTED_STATES = frozenset({S.DEAD, S.PREPARE_EPOCH_FENCE})
"""The log never has them: a tombstone stands for the first, and the second is replaced before it is written."""
IDLE_STATES = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
"""No transaction is open, so the id may begin anew, or be forgotten."""


class TransactionMetadata(NamedTuple):
    """Immutable state of a transactional id: a transition creates another one."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    start_ms: int
    """Time at which the first partition was added; -1 if none was since initialization."""
    last_update_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The id in force when this transition was prepared."""
    next_producer_id: int = NO_PRODUCER_ID
    """Producer id after completion, if the epochs are exhausted."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the producer's last own step: never written, so unknown after the coordinator has moved."""
    client_transaction_version: int = 0
    """The transaction.version its producer goes by."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """True if there is no epoch left that a producer may be given: the largest is for fencing."""
        return is_epoch_exhausted(self.producer_epoch)

    def transition_to(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """Return the id after a transition. An illegal transition is a bug."""
        assert self.state in VALID_PREVIOUS_STATES[state], f"{self.state.state_name} -> {state.state_name}"
        made = self._replace(state=state, previous_producer_id=self.producer_id, **changes)
        assert made.producer_id >= 0, made
        assert made.producer_epoch >= 0, made
        return made


def is_epoch_exhausted(epoch: int) -> bool:
    """Return True if the only epoch left is that of a fence."""
    return epoch >= MAX_PRODUCER_EPOCH - 1
