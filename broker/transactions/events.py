"""Events and effects of the state machine of one partition of `__transaction_state`.

Every request has a pending result; an error is a `ProtocolError` in it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.broker.transactions.pending_transition import PendingTransition
from ottla.broker.transactions.transaction_metadata import TopicPartition


class InitProducerId(NamedTuple):
    """A producer begins, or goes on; the answer is its id and epoch."""

    pending_request: Any
    transactional_id: str
    timeout_ms: int
    expected_producer: tuple[int, int] | None
    """The id and epoch it goes on with; None for one that is new."""


class AddPartitions(NamedTuple):
    """Enlist partitions; the answer is NONE."""

    pending_request: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_transaction_version: int
    """The transaction.version its producer goes by."""


class VerifyPartitions(NamedTuple):
    """Ask whether partitions are enlisted; the answer is those of the transaction that are."""

    pending_request: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class EndTransaction(NamedTuple):
    """Commit or abort; the answer is the id and epoch the producer goes on with, -1 and -1 where they stay."""

    pending_request: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    bumps_epoch: bool
    """True if it ends as transactions with epochs of their own do (EndTxn v5 and later)."""


class MarkersRequested(NamedTuple):
    """Effect that requests the markers of a decided transaction."""

    transactional_id: str
    pending_transition: PendingTransition


class MarkersWritten(NamedTuple):
    """Event for partitions with written markers, or deleted ones."""

    transactional_id: str
    pending_transition: PendingTransition
    partitions: tuple[TopicPartition, ...]
