"""Tiered storage of three simulated nodes with a faulty store: no record is lost, and no object remains."""

from __future__ import annotations

from sim.scenarios.tests.test_single_node import run_sim


def test_3_seeds_with_tiered_storage_have_no_violation() -> None:
    lines = run_sim("--tiered", "--seed", "11", "--seeds", "3", "--seconds", "12")
    assert len(lines) == 3
    assert all(line.endswith(" ok") for line in lines)
    assert all(int(line.split("objects=")[1].split(",")[0].split()[0]) > 0 for line in lines)
