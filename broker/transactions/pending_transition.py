"""A transition on its way: from when it is decided until the log has it for good, everybody sees what was before.

Source: ``TransactionMetadata.pendingState``, ``TxnTransitMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.transactions.transaction_metadata import PREPARED_STATES, TopicPartition, TransactionMetadata


class PendingTransition:
    """What a transactional id was and is to be. As long as there is one, no other transition begins."""

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
        """What everybody sees meanwhile."""
        if self.before.state in PREPARED_STATES:
            return self.before._replace(partitions=frozenset(self.remaining_partitions))
        return self.before
