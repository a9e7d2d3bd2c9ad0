"""Time from ``ottla serve`` on an empty directory to the first ApiVersions response, and idle memory.

Starts of `ottla.Broker` in this process are timed too.

``--secure``: time of ``ottla serve --secure`` until it has printed the paths of the client configurations, and until a
producer of confluent-kafka with these settings has its first acknowledgement.

Bytecode is cached, as in an installed Ottla, regardless of ``PYTHONDONTWRITEBYTECODE``: the first round writes it and
is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

import ottla
from compat_tests.support.processes import OTTLA, OttlaProcess

ROUNDS = 15


def measure_secure_start() -> None:
    """Start nodes with ``--secure``, each with a producer; print the times to the settings and to the first record."""
    ready, sent = [], []
    for _ in range(1 + ROUNDS):
        with tempfile.TemporaryDirectory() as where:
            began = time.perf_counter()
            command = [OTTLA, "serve", "--secure", "--listen", "127.0.0.1:0", "--data-dir", f"{where}/data"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as node:
                assert node.stdout is not None
                settings = None
                while settings is None:
                    line = node.stdout.readline()
                    assert line
                    settings = next((word for word in line.split() if word.endswith("secure-confluent.json")), None)
                ready.append(time.perf_counter() - began)
                producer = Producer(json.loads(Path(settings).read_text()))
                producer.produce("t", b"x")
                assert producer.flush(60) == 0
                sent.append(time.perf_counter() - began)
                node.terminate()
    for name, times in (("says where the settings are", ready[1:]), ("has a message of theirs", sent[1:])):
        print(f"--secure: {name}: median {statistics.median(times):.3f} s, worst {max(times):.3f} s of {ROUNDS}")


def main() -> None:
    """Measure starts of a node in a process and in this process, and its idle memory, or ``--secure``; print them."""
    parser = argparse.ArgumentParser("bench.start", description=__doc__)
    parser.add_argument("--secure", action="store_true")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if parser.parse_args().secure:
        measure_secure_start()
        return
    times, memory = [], []
    for _ in range(1 + ROUNDS):
        with tempfile.TemporaryDirectory() as where:
            node = OttlaProcess(Path(where) / "data")
            began = time.perf_counter()
            node.start()
            times.append(time.perf_counter() - began)
            text = Path(f"/proc/{node.pid}/status").read_text()
            memory.append(int(next(x for x in text.split("\n") if x.startswith("VmRSS")).split()[1]) / 1024)
            node.stop()
    del times[0], memory[0]
    print(f"first answer: median {statistics.median(times):.3f} s, worst {max(times):.3f} s of {ROUNDS}")
    with ottla.Broker():
        pass  # modules are imported now
    ready = []
    for _ in range(100):
        began = time.perf_counter()
        with ottla.Broker():
            ready.append(time.perf_counter() - began)
    ready.sort()
    print(f"in this process: ready after {ready[50]:.3f} s, p95 {ready[95]:.3f} s, worst {ready[-1]:.3f} s of 100")
    print(f"idle memory: median {statistics.median(memory):.1f} MB")


if __name__ == "__main__":
    main()
