"""The simulator: equal traces from equal seeds, promises kept, and planted bugs found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

ROOT = Path(__file__).resolve().parent.parent.parent


def run_sim(*arguments: str, expect: int = 0) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "sim", "--quiet", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == expect, done.stdout[-3000:] + done.stderr[-3000:]
    return [line for line in done.stdout.split("\n") if line.startswith("seed")]


def test_20_equal_seeds_give_equal_digests_in_two_processes() -> None:
    first, second = run_sim("--seed", "1", "--seeds", "20"), run_sim("--seed", "1", "--seeds", "20")
    assert first == second
    assert len({line.split()[3] for line in first}) == 20


def test_25_seeds_of_kills_and_power_cuts_break_no_promise() -> None:
    lines = run_sim("--seed", "1000", "--seeds", "25")
    assert len(lines) == 25
    assert all(line.endswith(" ok") for line in lines)
    assert any("power=" in line for line in lines)
    assert any("kill=" in line for line in lines)


def test_with_a_sync_before_each_acknowledgement_power_cuts_lose_nothing() -> None:
    lines = run_sim("--seed", "1", "--seeds", "6", "--synced")
    assert len(lines) == 6
    assert sum(int(line.split("power=")[1].split()[0].split(",")[0]) for line in lines) >= 60


def test_trio_still_has_the_private_names_the_simulator_turns() -> None:
    import trio._core._run as run

    assert trio.__version__.startswith("0.35.")
    assert run._ALLOW_DETERMINISTIC_SCHEDULING in (True, False)
    assert callable(run._r.seed)
    assert run.CancelStatus.__init__


# Bugs planted into the node, each with a name its violation may have.
PLANT = """
import sys
sys.path.insert(0, ".")
{bug}
from sim.__main__ import main
sys.argv = ["sim", "--quiet", "--seed", "1", "--seeds", "{seeds}"]
sys.exit(main())
"""

BUGS: dict[str, tuple[str, set[str]]] = {
    "acknowledge without writing": (
        """
from ottla.log.partition_log import PartitionLog, Appended
real = PartitionLog.append_as_leader
count = [0]
def append(self, data, epoch, now, origin=None, **k):
    count[0] += 1
    if self.topic == "t" and count[0] % 40 == 0:
        return Appended(self.log_end_offset, self.log_end_offset, -1)
    return real(self, data, epoch, now, *( (origin,) if origin else ()), **k)
PartitionLog.append_as_leader = append
""",
        {"lost"},
    ),
    "forget producers at a restart": (
        """
from ottla.log import recovery
recovery.rebuild_producers = lambda log, seen=None: None
""",
        {"duplicate"},
    ),
    "skip the duplicate check": (
        """
from ottla.log.producers import ProducerStates
ProducerStates.check = lambda self, header: None
""",
        {"duplicate"},
    ),
    "believe the files after a crash": (
        """
from ottla.log import checkpoints
from ottla.log import directory
directory.c.take_clean_shutdown = lambda disk, path: 1
""",
        {"lost"},
    ),
    "forget committed positions at a restart": (
        """
from ottla.broker.coordinator.runtime import CoordinatorRuntime
async def skip(self, shard): await self._take_up(shard, shard.replica.log.log_end_offset)
CoordinatorRuntime._load = skip
""",
        {"offset-back"},
    ),
    "serve a wrong byte": (
        """
from ottla.world.memory_disk import MemoryFile
real = MemoryFile.pread
def pread(self, size, offset):
    raw = real(self, size, offset)
    if "/t-0/" in self._path and offset > 5000 and len(raw) > 100:
        raw = raw[:90] + bytes([raw[90] ^ 1]) + raw[91:]
    return raw
MemoryFile.pread = pread
""",
        {"bad-crc"},
    ),
    "call it synced without syncing": (
        """
from ottla.log.durable import SyncJob
SyncJob.__call__ = lambda self: None
""",
        {"lost"},
    ),
}


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    code, names = BUGS[bug]
    done = subprocess.run(
        [sys.executable, "-c", PLANT.format(bug=code, seeds=12)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    found = {
        name
        for line in done.stdout.split("\n")
        if "VIOLATION" in line
        for name in line.split("VIOLATION ")[1].split(",")
    }
    assert found & names, f"found {found}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def test_in_sim_nothing_asks_the_machine_for_time_or_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    import random
    import time

    from sim.scenario import simulate

    def forbidden(name: str) -> Callable[..., Any]:
        def raise_it(*_: Any, **__: Any) -> Any:
            raise AssertionError(f"{name} was called")

        return raise_it

    for module, name in ((time, "time_ns"), (os, "urandom"), (random, "random"), (os, "pwrite"), (os, "fsync")):
        monkeypatch.setattr(module, name, forbidden(name))
    assert simulate(3).violations == []
