"""How long from ``ottla serve`` on an empty directory to the first answered ApiVersions, and the memory when idle.

With bytecode kept, as an installed Ottla has it, whatever ``PYTHONDONTWRITEBYTECODE`` says here: the first round
makes it and is not counted.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

import ottla
from compat_tests.cluster import OttlaProcess

ROUNDS = 15


def main() -> None:
    """Measure and print."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
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
        pass  # what is imported once is imported now
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
