"""Planting of bugs: a member of a class or module is replaced by one made from the original."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple


class SeededFault(NamedTuple):
    """Fault to plant."""

    apply: Callable[[], None]
    expected_violations: str
    """Names of violations that it may cause."""
    quorum: bool = False
    """True if a run of controllers alone finds it."""
    transactions: int = 0
    """Transaction version that finds it; 0: no transactions are needed."""
    uses_delays: bool = False
    """True if delayed requests without other faults find it."""
    groups: bool = False
    """True if members of the groups of Kafka 4 find it."""
    synced: bool = False
    """True if synced runs with power cuts find it."""
    test: str = ""
    """Name of the test that finds it, where no seed is likely to."""


def patch(where: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace a member by the result of ``make`` for the original."""
    setattr(where, name, make(getattr(where, name)))


FOUND, NOT_FOUND, NOT_REACHED = 0, 1, 2


def run_until_detected(plant: SeededFault, run: Callable[[int], Any], seeds: int) -> int:
    """Run seeds until a planted bug causes a violation; return the exit status.

    An unexpected exception of a node counts as a violation.
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


def run_test(path: str) -> int:
    """Run the tests of a file with a planted bug; return `FOUND` if one fails, else `NOT_FOUND`."""
    import pytest

    ended = pytest.main([path, "-q", "-x", "--assert=plain", "-p", "no:cacheprovider"])
    return FOUND if ended == pytest.ExitCode.TESTS_FAILED else NOT_FOUND


def _is_fault(file: Path) -> bool:
    return file.parent.name == "seeded_faults" and file.stem.endswith("_faults")


def is_fault_reached(run: Callable[[], object]) -> bool:
    """Return True if a run calls a planted function: a bug that is never reached proves no checker."""
    met: list[str] = []

    def look(frame: FrameType, call: str, _: object) -> None:
        if call == "call" and not met and _is_fault(Path(frame.f_code.co_filename)):
            met.append(frame.f_code.co_qualname)

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return bool(met)
