"""Pending transition of a transactional id: until its record is committed, requests see the state before it.

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
        """State after the transition; None if the transactional id is removed."""
        self.is_written = False
        """True if the record is appended to the log; it may still be lost until it is committed."""
        self.remaining_partitions: set[TopicPartition] = (
            set(before.partitions) if before.state in PREPARED_STATES else set()
        )
        """Partitions whose transaction marker is not written yet.

        The completion record is written after all of them.
        """

    def visible_transaction(self) -> TransactionMetadata:
        """Return the state that is visible to requests: ``before``, with the partitions that still need a marker."""
        if self.before.state in PREPARED_STATES:
            return self.before._replace(partitions=frozenset(self.remaining_partitions))
        return self.before
