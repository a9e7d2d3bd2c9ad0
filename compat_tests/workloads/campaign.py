"""Campaign of seeds, one after the other on both brokers, which stay up between them."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from compat_tests.workloads.compared_broker import ComparedBroker
from compat_tests.workloads.direct_requests import AGE_MS
from compat_tests.workloads.driver_processes import Driver, driver_commands
from compat_tests.workloads.outcome_comparison import find_differences, split_confirmed
from compat_tests.workloads.workload_generator import MIB, generate_workload
from compat_tests.workloads.workload_runner import WorkloadRun

TOGETHER_BYTES = 200 * MIB
"""Above this backlog one broker runs after the other: the disk holds the backlog once."""


class SeedResult(NamedTuple):
    """Result of a seed."""

    seed: int
    differences: list[str]
    took_s: float
    outcomes: dict[str, list[dict[str, Any]]]
    unconfirmed_differences: tuple[str, ...] = ()
    """Differences of one of two runs (`outcome_comparison.split_confirmed`)."""


class WorkloadCampaign:
    """Campaign with the drivers and the brokers."""

    def __init__(self, sides: Iterable[str] = ("ottla", "kafka"), plant: str = "") -> None:
        self._names = tuple(sides)
        self._plant = plant
        self._temporary = tempfile.TemporaryDirectory(prefix="workloads-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)
        self.drivers: list[Driver] = []
        self.sides: list[ComparedBroker] = []
        self._runs = 0

    def __enter__(self) -> WorkloadCampaign:
        run = driver_commands()
        java, go = (Driver(run[name], self.folder / f"{name}.log") for name in ("java", "go"))
        self.drivers += [java, go]
        try:
            for name in self._names:
                python = Driver(run["python"], self.folder / f"python-{name}.log")
                self.drivers.append(python)
                side = ComparedBroker(name, self.folder, go, python, java, self._plant)
                side.start()
                self.sides.append(side)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and delete the data."""
        for driver in self.drivers:
            driver.close()
        for side in self.sides:
            side.stop()
        self._temporary.cleanup()

    def run(self, seed: int) -> SeedResult:
        """Run a seed on each broker and compare. A broker that has ended is started again first."""
        began = time.monotonic()
        for side in self.sides:
            if side.exit_report():
                side.start()
        self._runs += 1
        workload = generate_workload(seed)
        base_ms = time.time_ns() // 1_000_000 - AGE_MS
        runs = {side.name: WorkloadRun(side, workload, f"w{seed}x{self._runs}", base_ms) for side in self.sides}
        outcomes: dict[str, list[dict[str, Any]]] = {}
        problems: list[str] = []

        def go(name: str) -> None:
            try:
                outcomes[name] = runs[name].run()
            except Exception as error:
                outcomes[name] = []
                problems.append(f"{name}: {type(error).__name__}: {error}")

        logged = {side.name: side.process.log.stat().st_size for side in self.sides}
        threads = [threading.Thread(target=go, args=(name,)) for name in runs]
        for thread in threads:
            thread.start()
            if workload["backlog"] > TOGETHER_BYTES:
                thread.join()
        for thread in threads:
            thread.join()
        problems += [f"{side.name} {side.exit_report()}" for side in self.sides if side.exit_report()]
        for side in self.sides:
            if side.name == "ottla" and "Traceback" in side.process.log.read_text()[logged["ottla"] :]:
                problems.append(f"ottla logged an exception: {side.process.log.read_text()[logged['ottla'] :][-2000:]}")
        if len(outcomes) == 2:
            problems += find_differences(workload, outcomes["ottla"], outcomes["kafka"])
        return SeedResult(seed, problems, time.monotonic() - began, outcomes)


def done_seeds(path: Path) -> dict[int, list[str]]:
    """Return the seeds a results file holds, with their differences."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["seed"]: row["differences"] for row in map(json.loads, lines)}


def run_campaign(stage: WorkloadCampaign, seeds: Iterable[int], path: Path | None) -> Iterator[SeedResult]:
    """Run all seeds that the results file does not hold, and append their results to it."""
    done = done_seeds(path) if path is not None else {}
    for seed in seeds:
        if seed in done:
            continue
        result = stage.run(seed)
        if result.differences:
            again = stage.run(seed)
            found, once = split_confirmed(result.differences, again.differences)
            result = again._replace(
                differences=found, unconfirmed_differences=tuple(once), took_s=result.took_s + again.took_s
            )
        if path is not None:
            times = {name: [each["took_s"] for each in steps] for name, steps in result.outcomes.items()}
            row = {"seed": seed, "differences": result.differences, "once": result.unconfirmed_differences}
            row |= {"took_s": round(result.took_s, 1), "steps_s": times}
            with path.open("a") as out:
                out.write(json.dumps(row) + "\n")
        yield result
