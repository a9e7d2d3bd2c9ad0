"""Which producers' transactions are being confirmed with their coordinator before they first write to a partition.

A transaction whose coordinator does not know of a partition is never ended there. So the leader asks before the first
batch, and an abort may overtake the answer: the batch would then open a transaction nobody ends. Against that stands a
guard, made before the question and shown at the append; a marker, or a batch that was quicker, takes it away.

Source: ``VerificationStateEntry.java``, ``VerificationGuard.java``, ``UnifiedLog.updateProducers`` (apache/kafka
4.3.1).

From KIP-890.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ottla.log.machine import Guard

NOT_NEEDED = Guard()
"""Stands for any guard where ``transaction.partition.verification.enable`` is off."""


class Txn(NamedTuple):
    """What whoever appends to a transaction, or ends one, knows of it."""

    guard: Guard | None = None
    """The one made before the coordinator was asked; None where that was not necessary."""
    version: int = 0
    """The version of the protocol a marker is written under: from 2 on each transaction has an epoch of its own."""


NO_TXN = Txn()


@dataclass(slots=True)
class Verifying:
    """A producer whose next transaction is being confirmed."""

    guard: Guard
    lowest_sequence: int
    """The lowest that was seen meanwhile: a batch beyond it must not overtake it into the log."""
    epoch: int
    bumps: bool
    """Whether its epoch grows with each transaction."""
    begun_ms: int


Verifications = dict[int, Verifying]
"""By producer id."""


def begin(known: Verifications, producer_id: int, epoch: int, sequence: int, now_ms: int, *, bumps: bool) -> Guard:
    """The guard of a producer that waits for its coordinator's answer: an older one goes on."""
    entry = known.get(producer_id)
    if entry is None:
        entry = known[producer_id] = Verifying(Guard(), sequence, epoch, bumps, now_ms)
    elif epoch > entry.epoch:
        entry.epoch, entry.lowest_sequence = epoch, sequence
    elif epoch == entry.epoch:
        entry.lowest_sequence = min(entry.lowest_sequence, sequence)
    return entry.guard


def end(known: Verifications, producer_id: int, epoch: int, *, is_marker: bool) -> None:
    """A batch of a transaction, or a marker, was written: what was confirmed before it counts no more.

    A marker of the epoch that is being confirmed ends the transaction before that one, where each has its own.
    """
    entry = known.get(producer_id)
    if entry is not None and not (entry.bumps and is_marker and epoch == entry.epoch):
        del known[producer_id]


def expire(known: Verifications, now_ms: int, expiration_ms: int) -> None:
    """Forget what nothing followed for so long."""
    for producer_id in [pid for pid, entry in known.items() if now_ms - entry.begun_ms >= expiration_ms]:
        del known[producer_id]
