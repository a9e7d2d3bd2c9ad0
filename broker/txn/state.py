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
LARGEST_EPOCH = 32767
FOREVER_MS = 2**31 - 1
"""The timeout of a transaction in two phases, which no timer ends (KIP-939)."""
EPOCH_BUMP = 2
"""The transaction.version from which on every transaction has an epoch of its own (KIP-890)."""
LONG_RECORDS = 1
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
    def title(self) -> str:
        """The name users see: ``CompleteCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


S = TransactionState
BY_TITLE: Mapping[str, TransactionState] = {state.title: state for state in TransactionState}
MAY_FOLLOW: Mapping[TransactionState, frozenset[TransactionState]] = {
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
PREPARED = frozenset({S.PREPARE_COMMIT, S.PREPARE_ABORT})
"""It is decided how the transaction ends, and its partitions are being told."""
NEVER_WRITTEN = frozenset({S.DEAD, S.PREPARE_EPOCH_FENCE})
"""The log never has them: a tombstone stands for the first, and the second is replaced before it is written."""
AT_REST = frozenset({S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT})
"""No transaction is open, so the id may begin anew, or be forgotten."""


class Transaction(NamedTuple):
    """What is known of a transactional id. Nothing changes in it: a transition makes another one."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    started_ms: int
    """When its first partition was added; -1 where nothing was since the id was initialised."""
    updated_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    """The id in force when this transition was prepared."""
    next_producer_id: int = NO_PRODUCER_ID
    """What the id becomes when the transaction is complete, where its epochs are used up."""
    last_epoch: int = NO_EPOCH
    """The epoch before the producer's last own step: never written, so unknown after the coordinator has moved."""
    client_version: int = 0
    """The transaction.version its producer goes by."""

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no epoch left that a producer may be given: the largest is for fencing."""
        return is_exhausted(self.producer_epoch)

    def to(self, state: TransactionState, **changes: Any) -> Transaction:
        """The same id one transition further. Not to be there yet where the table does not allow it is our bug."""
        assert self.state in MAY_FOLLOW[state], f"{self.state.title} -> {state.title}"
        made = self._replace(state=state, previous_producer_id=self.producer_id, **changes)
        assert made.producer_id >= 0, made
        assert made.producer_epoch >= 0, made
        return made


def is_exhausted(epoch: int) -> bool:
    """Whether no epoch may follow this one but the one that fences."""
    return epoch >= LARGEST_EPOCH - 1
