"""Planting of bugs: a member of a class or module is replaced by one made from the original."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple


class SeededFault(NamedTuple):
    """A bug."""

    apply: Callable[[], None]
    expected_violations: str
    """Violations it may show as."""
    quorum: bool = False
    """Whether controllers alone show it."""
    transactions: int = 0
    """The version of transactions that shows it; 0: none need be made."""
    uses_delays: bool = False
    """Whether it shows where nothing goes wrong but that requests come late."""
    groups: bool = False
    """Whether members of the groups of Kafka 4 show it."""
    synced: bool = False
    """Whether it shows where every acknowledgement waits for the disk, and power fails."""
    test: str = ""
    """The test that finds it, where no seed is likely to."""


def patch(where: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Put what ``make`` gives for the real thing in its place."""
    setattr(where, name, make(getattr(where, name)))


FOUND, NOT_FOUND, NOT_REACHED = 0, 1, 2


def run_until_detected(plant: SeededFault, run: Callable[[int], Any], seeds: int) -> int:
    """Run seeds until a bug that is sown already shows; gives the status of the process.

    Whatever a node ends with that nobody foresaw counts as shown.
    """
    for seed in range(1, seeds + 1):
        try:
            violations = run(seed).violations
        except BaseExceptionGroup as error:
            print(f"seed {seed}: {error!r}"[:500])
            return FOUND
        found = [(kind, text) for kind, text in violations if kind in plant.expected_violations.split()]
        if found:
            print(f"seed {seed}: {found[0]}"[:500])
            return FOUND
        print(f"seed {seed} ok {violations[:1]}"[:300], flush=True)
    return NOT_FOUND if is_fault_reached(lambda: run(1)) else NOT_REACHED


def _is_fault(file: Path) -> bool:
    return file.parent.name == "seeded_faults" and file.stem.endswith("_faults")


def is_fault_reached(run: Callable[[], object]) -> bool:
    """Whether a run calls anything that was planted: a bug that nobody calls is found by nobody, and proves nothing."""
    met: list[str] = []

    def look(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and not met and _is_fault(Path(frame.f_code.co_filename)):
            met.append(frame.f_code.co_qualname)

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return bool(met)
