"""A transition on its way: from when it is decided until the log has it for good, everybody sees what was before.

Source: ``TransactionMetadata.pendingState``, ``TxnTransitMetadata.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.broker.txn.state import PREPARED, TopicPartition, Transaction


class Pending:
    """What a transactional id was and is to be. As long as there is one, no other transition begins."""

    __slots__ = ("after", "before", "remaining", "written")

    def __init__(self, before: Transaction, after: Transaction | None) -> None:
        self.before = before
        self.after = after
        """None where the id is to be forgotten."""
        self.written = False
        """Whether its record stands in the log, where it may still get lost."""
        self.remaining: set[TopicPartition] = set(before.partitions) if before.state in PREPARED else set()
        """The partitions that do not know yet how the transaction has ended; its record waits for them."""

    def seen(self) -> Transaction:
        """What everybody sees meanwhile."""
        if self.before.state in PREPARED:
            return self.before._replace(partitions=frozenset(self.remaining))
        return self.before
