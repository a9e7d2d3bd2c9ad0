"""Kafka Streams' own smoke test under exactly_once_v2, with a processor killed while it works: its verdict counts.

A short form by default; ``OTTLA_STREAMS=60`` writes for that many seconds, kills a processor every ten, and does the
same on three nodes. In groups of either protocol: the classic one, and that of KIP-1071.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import ottla
from compat_tests.groups.test_streams_groups import SETTINGS
from compat_tests.support.jars import classpath, jars
from compat_tests.support.processes import OttlaProcess

SECONDS = int(os.environ.get("OTTLA_STREAMS", "0"))
GENERATE_S = SECONDS or 12
KILL_EVERY_S = 10
KEYS, PER_KEY = (20, 1000) if SECONDS else (10, 300)
WITHIN_S = GENERATE_S + (600 if SECONDS else 250)
"""Time limit for a slow machine: the test ends as soon as it has its verdict."""
TOO_SOON = "is larger than topic endOffset"
"""Message of Kafka's test when a marker was written between its request for end offsets and its verification."""
PROTOCOLS = {
    "classic": "group.protocol=classic\nsession.timeout.ms=6000\nheartbeat.interval.ms=1000\n",
    "streams": "group.protocol=streams\n",  # the session timeout is a setting of the group there
}


class StreamsProcessor:
    """Process of the application, with its state in a directory of its own, as on a machine of its own."""

    def __init__(self, bootstrap: str, directory: Path, protocol: str) -> None:
        directory.mkdir()
        self._config = directory / "streams.properties"
        self._config.write_text(
            f"bootstrap.servers={bootstrap}\nstate.dir={directory}/state\nprocessing.guarantee=exactly_once_v2\n"
            f"num.stream.threads=1\nproducer.transaction.timeout.ms=5000\n{PROTOCOLS[protocol]}"
        )
        self.log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = ["java", "-Xmx256m", "-cp", classpath("streams"), "org.apache.kafka.streams.tests.StreamsSmokeTest"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, str(self._config), "process"], stdout=log, stderr=log)

    def kill(self) -> None:
        """``kill -9``: its transaction stays open, and its members stay in the group."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@contextmanager
def processors(bootstrap: str, directory: Path, protocol: str, count: int) -> Iterator[list[StreamsProcessor]]:
    made = [StreamsProcessor(bootstrap, directory / f"processor-{number}", protocol) for number in range(count)]
    for one in made:
        one.start()
    try:
        yield made
    finally:
        for one in made:
            one.kill()


def smoke(bootstrap: str, directory: Path, protocol: str, replicas: int = 1) -> str:
    """Write records, kill and restart a processor now and then; return the output of the test."""
    jars("streams")
    program = Path(__file__).parent.parent / "java" / "StreamsSmokeTest.java"
    numbers = [str(number) for number in (KEYS, PER_KEY, GENERATE_S, replicas)]
    log_path = directory / "smoke.log"
    with log_path.open("wb") as log:
        driver = subprocess.Popen(
            ["java", "-Xmx256m", "-cp", classpath("streams"), str(program), bootstrap, *numbers], stdout=log, stderr=log
        )
    deadline = time.monotonic() + WITHIN_S
    try:
        while "TOPICS" not in log_path.read_text():
            assert driver.poll() is None, log_path.read_text()
            time.sleep(0.1)
        with processors(bootstrap, directory, protocol, 2) as running:
            for number in range(max(GENERATE_S // KILL_EVERY_S, 1)):
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(KILL_EVERY_S)
                running[number % 2].kill()
                if SECONDS:
                    running[number % 2].start()
            try:
                driver.wait(deadline - time.monotonic())
            except subprocess.TimeoutExpired:
                raise AssertionError(log_path.read_text()[-3000:] + running[1].log.read_text()[-3000:]) from None
    finally:
        driver.kill()
        driver.wait()
    return log_path.read_text()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams_smoke_test_with_killed_processor_passes(data_dir: Path, tmp_path: Path, protocol: str) -> None:
    for turn in range(3):
        (tmp_path / str(turn)).mkdir()
        with OttlaProcess(data_dir.with_name(f"data{turn}"), **SETTINGS) as node:
            text = smoke(node.bootstrap, tmp_path / str(turn), protocol)
        if TOO_SOON not in text:
            break
    assert "PASSED" in text, text[-3000:]


@pytest.mark.skipif(not SECONDS, reason="minutes: only where OTTLA_STREAMS says for how long")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_streams_smoke_test_on_three_nodes_passes(tmp_path: Path, protocol: str) -> None:
    settings = {name.replace("_", "."): value for name, value in SETTINGS.items()}
    with ottla.Cluster(3, settings=settings) as cluster:
        text = smoke(cluster.bootstrap_servers, tmp_path, protocol, replicas=3)
    assert "PASSED" in text, text[-3000:]
