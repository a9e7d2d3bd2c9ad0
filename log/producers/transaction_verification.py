"""Verification of transactions with their coordinator before their first write to a partition.

A transaction whose coordinator does not know of a partition is never ended there. So the leader verifies it before the
first batch. An abort may overtake the response: the batch would then open a transaction that is never ended. A guard
prevents this: it is created before the request and passed to the append; a marker or an earlier batch removes it.

Source: ``VerificationStateEntry.java``, ``VerificationGuard.java``, ``UnifiedLog.updateProducers`` (apache/kafka
4.3.1).

From KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.jobs.state_machine import VerificationGuard

VERIFICATION_DISABLED = VerificationGuard()
"""Stands for any guard where ``transaction.partition.verification.enable`` is off."""


class TxnAppendContext(NamedTuple):
    """Transaction of an append: its guard and version."""

    guard: VerificationGuard | None = None
    """The one made before the coordinator was asked; None where that was not necessary."""
    transaction_version: int = 0
    """The version of the protocol a marker is written under: from 2 on each transaction has an epoch of its own."""


NO_TXN_CONTEXT = TxnAppendContext()


@dataclass(slots=True)
class VerificationStateEntry:
    """Producer whose next transaction is being verified."""

    guard: VerificationGuard
    lowest_sequence: int
    """The lowest that was seen meanwhile: a batch beyond it must not overtake it into the log."""
    epoch: int
    supports_epoch_bump: bool
    """True if its epoch grows with each transaction."""
    started_ms: int


VerificationStates = dict[int, VerificationStateEntry]
"""By producer id."""


def start_verification(
    known: VerificationStates, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps: bool
) -> VerificationGuard:
    """Return the guard of a producer during its verification by the coordinator; an existing one is reused."""
    entry = known.get(producer_id)
    if entry is None:
        entry = known[producer_id] = VerificationStateEntry(VerificationGuard(), sequence, epoch, bumps, now_ms)
    elif epoch > entry.epoch:
        entry.epoch, entry.lowest_sequence = epoch, sequence
    elif epoch == entry.epoch:
        entry.lowest_sequence = min(entry.lowest_sequence, sequence)
    return entry.guard


def clear_verification(known: VerificationStates, producer_id: int, epoch: int, *, is_marker: bool) -> None:
    """Remove a verification after a batch or marker of the transaction was written.

    A marker of the epoch that is being confirmed ends the transaction before that one, where each has its own.
    """
    entry = known.get(producer_id)
    if entry is not None and not (entry.supports_epoch_bump and is_marker and epoch == entry.epoch):
        del known[producer_id]


def expire_verifications(known: VerificationStates, now_ms: int, expiration_ms: int) -> None:
    """Remove verifications without a following append within ``expiration_ms``."""
    for producer_id in [pid for pid, entry in known.items() if now_ms - entry.started_ms >= expiration_ms]:
        del known[producer_id]
