"""Kafka's Java client at listeners that authenticate: the results of many settings in one process."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from compat_tests.support.jars import classpath

LoginCells = Mapping[str, Mapping[str, str]]
"""Settings of a client by name."""


def log_in_by_java(cells: LoginCells, where: Path, *options: str) -> dict[str, str]:
    """Return the result of each cell; a timeout on a busy machine is tried again, twice."""
    results = _run_client(cells, where, options)
    for turn in range(2):
        late = {name: values for name, values in cells.items() if results[name].startswith("TimeoutException")}
        results |= _run_client(late, where.with_suffix(f".again{turn}"), options) if late else {}
    return results


def _run_client(cells: LoginCells, where: Path, options: tuple[str, ...]) -> dict[str, str]:
    where.mkdir()
    for number, values in enumerate(cells.values()):
        (where / f"{number:02d}").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    program = Path(__file__).parent.parent / "java" / "ClientAuthentication.java"
    command = ["java", "-cp", classpath(), *options, str(program), *sorted(map(str, where.iterdir()))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    results = dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)
    return {name: results[f"{number:02d}"] for number, name in enumerate(cells)}
