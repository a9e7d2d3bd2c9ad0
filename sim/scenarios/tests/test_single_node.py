"""Single node in the simulator: equal traces from equal seeds, no violation, and planted bugs found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from sim.scenarios.single_node import simulate_node
from sim.tests.seeded_faults.seeded_node import CI_FAULTS, SEEDED_FAULTS

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def run_module(name: str, *arguments: str, expect: int = 0) -> str:
    """Return the output of a module, run in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", name, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == expect, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def run_sim(*arguments: str, expect: int = 0) -> list[str]:
    printed = run_module("sim", "--quiet", *arguments, expect=expect)
    return [line for line in printed.split("\n") if line.startswith("seed")]


def test_20_single_node_runs_with_equal_seeds_give_equal_digests() -> None:
    first, second = run_sim("--seed", "1", "--seeds", "20"), run_sim("--seed", "1", "--seeds", "20")
    assert first == second
    assert len({line.split()[3] for line in first}) == 20


def test_25_seeds_with_kills_and_power_cuts_have_no_violation() -> None:
    lines = run_sim("--seed", "1000", "--seeds", "25")
    assert len(lines) == 25
    assert all(line.endswith(" ok") for line in lines)
    assert any("power=" in line for line in lines)
    assert any("kill=" in line for line in lines)


def test_6_synced_seeds_with_power_cuts_have_no_violation() -> None:
    lines = run_sim("--seed", "1", "--seeds", "6", "--synced")
    assert len(lines) == 6
    assert sum(int(line.split("power=")[1].split()[0].split(",")[0]) for line in lines) >= 60


def test_trio_has_the_private_names_that_are_patched() -> None:
    import trio._core._run as run

    assert trio.__version__.startswith("0.35.")
    assert run._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert callable(run._r.seed)
    assert run.CancelStatus.__init__


@pytest.mark.parametrize("bug", list(SEEDED_FAULTS) if os.environ.get("OTTLA_PLANTS") else CI_FAULTS)
def test_planted_bug_in_node_is_found(bug: str) -> None:
    run_module("sim.tests.seeded_faults.seeded_node", bug)


def test_simulation_calls_no_clock_random_or_disk_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import random
    import time

    def forbidden(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def raise_it(*arguments: Any, **more: Any) -> Any:
            # From Python 3.13 on the standard logging takes the time of a message with this function.
            if sys._getframe(1).f_globals["__name__"] == "logging":
                return real(*arguments, **more)
            raise AssertionError(f"{name} was called")

        return raise_it

    for module, name in ((time, "time_ns"), (os, "urandom"), (random, "random"), (os, "pwrite"), (os, "fsync")):
        monkeypatch.setattr(module, name, forbidden(name, getattr(module, name)))
    assert simulate_node(3).violations == []
