"""Kafka Streams' own smoke test under exactly_once_v2, with a processor killed while it works: its verdict counts.

A short form by default; ``OTTLA_STREAMS=60`` writes for that many seconds, and kills a processor every ten.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from compat_tests.cluster import OttlaProcess
from compat_tests.jars import classpath, jars

SECONDS = int(os.environ.get("OTTLA_STREAMS", "0"))
GENERATE_S = SECONDS or 12
KILL_EVERY_S = 10
KEYS, PER_KEY = (20, 1000) if SECONDS else (10, 300)
WITHIN_S = GENERATE_S + 600 if SECONDS else 75


class Processor:
    """One process of the application; each has its state in a directory of its own, as on a machine of its own."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        directory.mkdir()
        self._config = directory / "streams.properties"
        self._config.write_text(
            f"bootstrap.servers={bootstrap}\nstate.dir={directory}/state\nprocessing.guarantee=exactly_once_v2\n"
            "group.protocol=classic\nnum.stream.threads=1\nsession.timeout.ms=6000\nheartbeat.interval.ms=1000\n"
            "producer.transaction.timeout.ms=5000\n"
        )
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["java", "-Xmx256m", "-cp", classpath("streams"), "org.apache.kafka.streams.tests.StreamsSmokeTest"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, str(self._config), "process"], stdout=log, stderr=log)

    def kill(self) -> None:
        """``kill -9``: its transaction stays open, and nobody leaves the group."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def processors(bootstrap: str, directory: Path, count: int) -> Iterator[list[Processor]]:
    made = [Processor(bootstrap, directory / f"processor-{number}") for number in range(count)]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.kill()


def smoke(bootstrap: str, directory: Path, replicas: int = 1) -> str:
    """Write, kill a processor now and then, and start it again; gives what the test says in the end."""
    jars("streams")
    program = Path(__file__).parent / "java" / "Smoke.java"
    numbers = [str(number) for number in (KEYS, PER_KEY, GENERATE_S, replicas)]
    said = directory / "smoke.log"
    with said.open("wb") as log:
        driver = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classpath("streams"), str(program), bootstrap, *numbers], stdout=log, stderr=log
        )
    deadline = time.monotonic() + WITHIN_S
    try:
        while "TOPICS" not in said.read_text():
            assert driver.poll() is None, said.read_text()
            time.sleep(0.1)
        with processors(bootstrap, directory, 2) as running:
            for number in range(max(GENERATE_S // KILL_EVERY_S, 1)):
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(KILL_EVERY_S)
                running[number % 2].kill()
                if SECONDS:
                    running[number % 2].start()
            try:
                driver.wait(deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                raise AssertionError(said.read_text()[-3000:] + running[1].log.read_text()[-3000:]) from None
    finally:
        driver.kill()
        driver.wait()
    return said.read_text()


def test_what_streams_makes_of_its_input_is_whole_though_a_processor_was_killed(data_dir: Path, tmp_path: Path) -> None:
    with OttlaProcess(data_dir) as node:
        said = smoke(node.bootstrap, tmp_path)
    assert "PASSED" in said, said[-3000:]
