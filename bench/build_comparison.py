"""Comparison with another build of Ottla: cost and rate of requests.

``python -m bench.build_comparison TREE``, where TREE is a checkout (``git worktree add TREE REVISION``). Rounds
alternate, so that both run on the same machine; medians count. Requests are small, so that their cost, CPU time in us,
is that of the broker: one record of 100 bytes produced with acks=all, and one fetched. Kafka's producer load tool runs
too, unless ``--records`` is 0. Ratios are this build / the other one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.produce import cpu_s, run_load_tool
from compat_tests.support.processes import OttlaProcess, java_tool
from compat_tests.support.raw_client import RawClient
from ottla.wire.api_keys import ApiKey
from ottla.wire.framing import encode_request
from ottla.wire.messages import fetch, produce
from ottla.wire.record_batch import records

TOGETHER = 10
"""Requests in flight at once."""


class BuildUnderTest(OttlaProcess):
    """Node that runs the code of the source tree ``tree``."""

    def __init__(self, tree: Path, data_dir: Path) -> None:
        super().__init__(data_dir)
        self._tree = tree

    def command(self) -> list[str]:
        """Return the command of the process, with ``PYTHONPATH`` of that tree."""
        return ["env", f"PYTHONPATH={self._tree}", *super().command()]


def produce_frame() -> bytes:
    """Return the frame of a Produce request (acks=all): one record, with a value of 100 bytes, for ``small``-0."""
    raw = records.build_batch([records.NewRecord(None, bytes(100), int(time.time() * 1000))])
    data = produce.TopicProduceData("small", partition_data=[produce.PartitionProduceData(0, raw)])
    return encode_request(ApiKey.PRODUCE, 9, 1, "bench", produce.ProduceRequest(None, -1, 10_000, [data]))


def fetch_frame() -> bytes:
    """Return the frame of a Fetch request for the first record of the topic ``small``."""
    part = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1)
    request = fetch.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=1, topics=[fetch.FetchTopic("small", partitions=[part])]
    )
    return encode_request(ApiKey.FETCH, 12, 1, "bench", request)


def measure_requests(node: BuildUnderTest, frame: bytes, requests: int) -> tuple[float, float]:
    """Send ``frame`` ``requests`` times over one connection, `TOGETHER` at a time.

    Returns:
        Microseconds of broker CPU per request, and requests per second.
    """
    client = RawClient(node.port)
    before, began = cpu_s(node.pid), time.monotonic()
    for _ in range(requests // TOGETHER):
        client.sock.sendall(frame * TOGETHER)
        for _ in range(TOGETHER):
            client.read()
    out = (cpu_s(node.pid) - before) / requests * 1e6, requests / (time.monotonic() - began)
    client.close()
    return out


def main() -> None:
    """Measure this build and the other one in rounds, and print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path, help="the other build")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--records", type=int, default=1_000_000, help="for the load tool; 0 leaves it out")
    options = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {}

    def note(label: str, name: str, value: float) -> None:
        figures.setdefault(label, {}).setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as where:
        nodes = {
            "other": BuildUnderTest(options.tree.resolve(), Path(where) / "other"),
            "this": BuildUnderTest(Path(__file__).resolve().parent.parent, Path(where) / "this"),
        }
        for node in nodes.values():
            node.start()
            for topic in ("small", "load"):
                java_tool("TopicCommand", "--bootstrap-server", node.bootstrap, "--create", "--topic", topic)
        kinds: dict[str, Callable[[], bytes]] = {"produce": produce_frame, "fetch": fetch_frame}
        for number in range(-1, options.rounds):  # the first round warms both up
            for name, node in nodes.items():
                for kind, frame in kinds.items():
                    cost, rate = measure_requests(node, frame(), options.requests)
                    if number >= 0:
                        note(f"{kind}: us of CPU a request", name, cost)
                        note(f"{kind}: requests/s", name, rate)
                if options.records:
                    done = run_load_tool(node, options.records, 100)
                    if number >= 0:
                        note("load tool: records/s", name, done.records_a_second)
                        note("load tool: s of CPU", name, done.broker_cpu_s)
        for node in nodes.values():
            node.stop()
    for label, values in figures.items():
        other, this = (statistics.median(values[name]) for name in ("other", "this"))
        print(f"{label:32} other {other:12,.1f}   this {this:12,.1f}   ratio {this / other:.3f}")


if __name__ == "__main__":
    main()
