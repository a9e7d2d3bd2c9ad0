"""Test of the commands ``make run`` and ``make demo``: the program that the Makefile starts, and what it prints."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from spark_it.pipelines.submit import BIN, ROOT, fetch_packages

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed"),
]
WITHIN_S = 600


def command_of(*target: str) -> list[str]:
    """Return the command of a target of the Makefile, with this Python; the environment is taken as set up."""
    make = ["make", "--dry-run", "--no-print-directory", "--old-file=setup", f"BIN={BIN}", *target]
    (line,) = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return line.split()


def test_make_demo_without_pipeline_is_make_run() -> None:
    assert command_of("demo") == command_of("run")
    assert command_of("demo", "PIPELINE=joins", "SIZE=100")[3:] == ["joins", "--size", "100"]


@pytest.fixture
def packages() -> None:
    """Fetch the job's packages, so that a registry that does not respond fails no test."""
    names = subprocess.run([*command_of("run"), "--packages"], cwd=ROOT, capture_output=True, text=True, check=True)
    if error := fetch_packages(names.stdout.strip(), ROOT / ".cache" / "ivy2"):
        pytest.skip(f"Spark's packages cannot be fetched: {error}")


@pytest.mark.usefixtures("packages")
def test_make_run_prints_a_table_that_equals_plain_python_and_ends_with_status_0(tmp_path: Path) -> None:
    folders = ["--data-dir", str(tmp_path / "data"), "--folder", str(tmp_path / "work")]
    command = [*command_of("run"), *folders]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    _, _, shown = done.stdout.partition("\n4. ")
    table, _, rest = shown.partition("\nThe result equals what plain Python computes from the same input.\n")
    assert rest, shown
    _, _, heading, *rows = table.rstrip().splitlines()
    assert heading.split()[:4] == ["metric", "unit", "average", "most"]
    assert {row.split()[0] for row in rows} >= {"cpu.0", "memory.used"}
    assert "The node has stopped cleanly. Its data is kept in data/." in rest
    assert (tmp_path / "data" / "measurements-0").is_dir()
