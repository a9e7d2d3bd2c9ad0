"""Output of Kafka's tools against three nodes of Ottla, compared with that against three of Apache Kafka 4.3.1."""

from __future__ import annotations

import difflib
from pathlib import Path

from compat_tests.tools.cluster_tools_script import run_script
from compat_tests.tools.golden_tools import load_recording


def test_kafka_tools_output_equals_recording_of_kafka(tmp_path: Path) -> None:
    ours, theirs = run_script(tmp_path, kafka=False), load_recording().split("\n")
    assert sum(line.startswith("$ ") for line in theirs) >= 180
    found = list(difflib.unified_diff(theirs, ours, "Kafka", "ours", n=4, lineterm=""))
    assert not found, "\n".join(found)
