"""Kafka's classes of remote log metadata beside Ottla's: bytes, cache, leader epochs, metadata partition."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat_tests.support.jars import classpath, jars
from ottla.broker.storage.tiered.tests.remote_log_metadata_script import RECORDED_ANSWERS, ScriptRunner, draw_script

RECORDS = 300
SEEDS = range(20)


def kafka_answers(script: list[str]) -> list[str]:
    """Return the answers of Kafka's classes to a script."""
    jars("kafka")
    program = Path(__file__).parent.parent / "java" / "TieredMetadata.java"
    done = subprocess.run(
        ["java", "-Xmx256m", "-cp", classpath(), str(program)],
        input="\n".join(script),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_random_records_of_remote_log_metadata_have_the_effects_they_have_in_kafka() -> None:
    script = [line for seed in SEEDS for line in draw_script(seed, RECORDS)]
    answers = kafka_answers(script)
    runner = ScriptRunner()
    for number, (line, expected) in enumerate(zip(script, answers, strict=True)):
        assert runner.answer(line) == expected, (number, line)
    found = [answer for line, answer in zip(script, answers, strict=True) if line.startswith(("segment", "txn"))]
    assert sum(answer != "-" for answer in found) > 500
    within = [answer for line, answer in zip(script, answers, strict=True) if line.startswith("within")]
    assert sum(answer == "true" for answer in within) > 100


def test_recorded_answers_of_kafka_are_still_its_answers() -> None:
    lines = RECORDED_ANSWERS.read_text().splitlines()
    script = [line.partition(" => ")[0] for line in lines]
    answers = kafka_answers(script)
    assert lines == [f"{line} => {answer}" for line, answer in zip(script, answers, strict=True)]
