"""Verification that the transaction coordinator has added a partition, before a transaction's first write to it.

The coordinator writes markers only to partitions that were added to the transaction. So the leader verifies before the
first batch that its partition was added. An abort marker may precede the verification response: the batch would then
open a transaction that is never ended. A guard prevents this: it is created before the request and passed to the
append; a marker or another batch appended in between removes it.

Source: ``VerificationStateEntry.java``, ``VerificationGuard.java``, ``UnifiedLog.updateProducers`` (apache/kafka
4.3.1).

From KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.jobs.state_machine import VerificationGuard

VERIFICATION_DISABLED = VerificationGuard()
"""Guard that every append accepts, used if ``transaction.partition.verification.enable`` is false."""


class TxnAppendContext(NamedTuple):
    """Transaction of an append: verification guard (None: unnecessary) and a marker's ``transaction.version``."""

    guard: VerificationGuard | None = None
    """Guard created before the verification request; None if no verification was necessary."""
    transaction_version: int = 0
    """``transaction.version`` of a marker: from 2 on the producer epoch is incremented with each transaction."""


NO_TXN_CONTEXT = TxnAppendContext()


@dataclass(slots=True)
class VerificationStateEntry:
    """Pending verification of a producer's transaction; ``epoch``: of the producer; ``started_ms``: wall clock."""

    guard: VerificationGuard
    lowest_sequence: int
    """Lowest base sequence of the batches that wait for the verification: none above it may be appended first."""
    epoch: int
    supports_epoch_bump: bool
    """True if the producer's epoch is incremented with each transaction (transaction.version 2)."""
    started_ms: int


VerificationStates = dict[int, VerificationStateEntry]
"""Pending verifications by producer id."""


def start_verification(
    states: VerificationStates, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps: bool
) -> VerificationGuard:
    """Return the guard of a producer's pending verification, which is added to ``states`` if there is none.

    A batch with a newer producer epoch or lower sequence updates it. ``bumps``: the epoch is incremented with each
    transaction. ``now_ms``: wall clock.
    """
    entry = states.get(producer_id)
    if entry is None:
        entry = states[producer_id] = VerificationStateEntry(VerificationGuard(), sequence, epoch, bumps, now_ms)
    elif epoch > entry.epoch:
        entry.epoch, entry.lowest_sequence = epoch, sequence
    elif epoch == entry.epoch:
        entry.lowest_sequence = min(entry.lowest_sequence, sequence)
    return entry.guard


def clear_verification(states: VerificationStates, producer_id: int, epoch: int, *, is_marker: bool) -> None:
    """Remove a producer's pending verification after a batch or marker of the producer was appended.

    With transaction.version 2 a marker with the epoch under verification ends the previous transaction: the
    verification stays.
    """
    entry = states.get(producer_id)
    if entry is not None and not (entry.supports_epoch_bump and is_marker and epoch == entry.epoch):
        del states[producer_id]


def expire_verifications(states: VerificationStates, now_ms: int, expiration_ms: int) -> None:
    """Remove verifications from ``states`` that started at least ``expiration_ms`` before ``now_ms`` (wall clock)."""
    for producer_id in [pid for pid, entry in states.items() if now_ms - entry.started_ms >= expiration_ms]:
        del states[producer_id]
