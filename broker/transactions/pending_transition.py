"""Pending transition: until it is committed, readers see the state before it.

Source: ``TransactionMetadata.pendingState``, ``TxnTransitMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.transactions.transaction_metadata import PREPARED_STATES, TopicPartition, TransactionMetadata


class PendingTransition:
    """State of a transactional id before and after a transition. While it is pending, no other transition starts."""

    __slots__ = ("after", "before", "is_written", "remaining_partitions")

    def __init__(self, before: TransactionMetadata, after: TransactionMetadata | None) -> None:
        self.before = before
        self.after = after
        """None where the id is to be forgotten."""
        self.is_written = False
        """True if its record stands in the log, where it may still get lost."""
        self.remaining_partitions: set[TopicPartition] = (
            set(before.partitions) if before.state in PREPARED_STATES else set()
        )
        """The partitions that do not know yet how the transaction has ended; its record waits for them."""

    def visible_transaction(self) -> TransactionMetadata:
        """Transaction that readers see meanwhile."""
        if self.before.state in PREPARED_STATES:
            return self.before._replace(partitions=frozenset(self.remaining_partitions))
        return self.before
