"""Kafka's own tools print beside three nodes of ours what they print beside three of Apache Kafka 4.3.1."""

from __future__ import annotations

import difflib
from pathlib import Path

from compat_tests.tools.cluster_tools_script import run_script
from compat_tests.tools.golden_tools import load_recording


def test_kafkas_tools_print_what_they_print_beside_three_kafkas(tmp_path: Path) -> None:
    ours, theirs = run_script(tmp_path, kafka=False), load_recording().split("\n")
    assert sum(line.startswith("$ ") for line in theirs) >= 180
    found = list(difflib.unified_diff(theirs, ours, "Kafka", "ours", n=4, lineterm=""))
    assert not found, "\n".join(found)
