"""Random tests of clusters, decided step by step by our controller's rules and by Kafka's classes: equal results."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat_tests.support.jars import classpath, jars
from compat_tests.vs_kafka.controller_random_test import ControllerRandomTest
from compat_tests.vs_kafka.kafka_controller import KafkaControllerProcess

SEEDS = 60
STEPS = 300


def test_controller_in_random_scenarios_equals_kafka(tmp_path: Path) -> None:
    """Registration, sessions, elections, reassignments and ISR (R-269 to R-277, R-281, R-284 to R-298, R-302)."""
    jars("kafka")
    source = Path(__file__).parent.parent / "java" / "controller" / "ControllerDriver.java"
    subprocess.run(["javac", "-cp", classpath(), "-d", str(tmp_path), str(source)], check=True)
    kafka = KafkaControllerProcess(f"{tmp_path}:{classpath()}")
    decided = written = whole = 0
    try:
        for seed in range(SEEDS):
            comparison = ControllerRandomTest(kafka, seed)
            comparison.run_steps(STEPS)
            decided, written, whole = (
                decided + comparison.steps,
                written + comparison.changes,
                whole + (not comparison.cut_short),
            )
    finally:
        kafka.close()
    assert decided > SEEDS * STEPS / 2
    assert written > SEEDS * STEPS / 4
    assert whole > SEEDS * 0.7, "hardly any ends early"
