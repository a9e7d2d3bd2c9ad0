"""Failures of coordinators as assertions: in simulations and tests no log contains an invalid record."""

from __future__ import annotations

from typing import NoReturn

from ottla.broker.coordinator import errors


def raise_coordinator_failure(error: errors.CoordinatorStateError, topic: str, partition: int, event: str) -> NoReturn:
    """Raise an AssertionError for a failure that a node would only log.

    Raises:
        AssertionError: always; the cause is that of ``error``.
    """
    raise AssertionError(f"{topic}-{partition} failed at {event}") from error.__cause__


def end_on_coordinator_failure() -> None:
    """Make a failed coordinator raise an AssertionError, which ends its node, for the rest of this Python process."""
    errors.report_failure = raise_coordinator_failure
