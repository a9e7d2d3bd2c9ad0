"""Events and effects of the state machine of one partition of `__transaction_state`.

An event of a client request has its pending request; an error completes it with a `ProtocolError`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ottla.broker.transactions.pending_transition import PendingTransition
from ottla.broker.transactions.transaction_metadata import TopicPartition


class InitProducerId(NamedTuple):
    """Event: initialize or recover a producer; the reply is its (producer id, epoch).

    An ongoing transaction is aborted first: the reply is CONCURRENT_TRANSACTIONS, and the producer tries again.
    """

    pending_request: Any
    transactional_id: str
    timeout_ms: int
    expected_producer: tuple[int, int] | None
    """Producer id and epoch of a producer that recovers from an error (KIP-360); None for a new producer."""


class AddPartitions(NamedTuple):
    """Event: add partitions to a transaction, which starts if none is open; the reply is NONE."""

    pending_request: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    client_transaction_version: int
    """transaction.version that the producer uses."""


class VerifyPartitions(NamedTuple):
    """Event: verify that partitions were added to a transaction; the reply is the subset that was."""

    pending_request: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]


class EndTransaction(NamedTuple):
    """Event: commit or abort a transaction; the reply follows once that decision is committed in the log.

    The reply is the (producer id, epoch) of the next transaction, (-1, -1) unless ``bumps_epoch``.
    """

    pending_request: Any
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    bumps_epoch: bool
    """True if the producer has a new epoch for each transaction (EndTxn v5 and later)."""


class MarkersRequested(NamedTuple):
    """Effect: write transaction markers to the partitions of a transaction in state PrepareCommit or PrepareAbort."""

    transactional_id: str
    pending_transition: PendingTransition


class MarkersWritten(NamedTuple):
    """Event: these partitions of a transaction need no marker any more.

    It is written, the partition is deleted, or its leader does not support transactions.
    """

    transactional_id: str
    pending_transition: PendingTransition
    partitions: tuple[TopicPartition, ...]
