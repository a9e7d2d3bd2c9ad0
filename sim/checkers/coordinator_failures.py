"""Failures of coordinators that end the run: in the simulator and in tests no log holds a record that is invalid."""

from __future__ import annotations

from typing import NoReturn

from ottla.broker.coordinator import errors


def raise_coordinator_failure(error: errors.CoordinatorStateError, topic: str, partition: int, event: str) -> NoReturn:
    """Raise what a node would only log.

    Raises:
        AssertionError: always; the cause is that of ``error``.
    """
    raise AssertionError(f"{topic}-{partition} failed at {event}") from error.__cause__


def end_on_coordinator_failure() -> None:
    """Have the failure of a coordinator end the process it runs in, as a broken invariant does."""
    errors.report_failure = raise_coordinator_failure
