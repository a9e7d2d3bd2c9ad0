"""The node's numbers at an address of their own, as Prometheus reads them: ``ottla.metrics.listener=HOST:PORT``.

Names are those a Prometheus exporter gives Kafka's beans, where Kafka has the number; what only Ottla has begins with
``ottla_``. Everything is counted anyway: asking costs a walk over the partitions, not asking costs nothing.

Source: ``LogManager``, ``LogCleanerManager``, ``ReplicaManager``, ``UnifiedLog`` beans (apache/kafka 4.3.1, docs/ops).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

import trio

from ottla.log.partition_log import PartitionLog
from ottla.world.env import Listener, Stream

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.metrics")
MAX_REQUEST_BYTES = 8192
PATIENCE_S = 10.0
_PER_LOG: dict[str, tuple[str, Callable[[PartitionLog], int]]] = {
    "kafka_log_log_size": ("Bytes of all segments.", lambda log: log.size_bytes),
    "kafka_log_log_numlogsegments": ("Segments.", lambda log: len(log.segments)),
    "kafka_log_log_logstartoffset": ("First offset that is kept.", lambda log: log.log_start_offset),
    "kafka_log_log_logendoffset": ("Next offset to be written.", lambda log: log.log_end_offset),
}


class Numbers:
    """Everything there is to tell of a node; what `prometheus_client` calls a collector."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Any]:
        """The numbers as they stand now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        node = self._node
        logs = node.storage.logs()
        for name, (about, value) in _PER_LOG.items():
            rows = GaugeMetricFamily(name, about, labels=["topic", "partition"])
            for log in logs:
                rows.add_metric([log.topic, str(log.partition)], value(log))
            yield rows
        for name, about, number in self._gauges(logs):
            yield GaugeMetricFamily(name, about, value=number)
        for name, about, number in self._counters():
            yield CounterMetricFamily(name, about, value=number)

    def _gauges(self, logs: list[PartitionLog]) -> Iterable[tuple[str, str, float]]:
        node = self._node
        replicas = list(node.replicas)
        yield "kafka_server_replicamanager_partitioncount", "Partitions on this node.", len(replicas)
        leading = sum(x.is_leader for x in replicas)
        yield "kafka_server_replicamanager_leadercount", "Partitions this node leads.", leading
        offline = node.replicas.offline_count
        yield "kafka_server_replicamanager_offlinereplicacount", "Partitions in failed directories.", offline
        failed = len(node.storage.failed)
        yield "kafka_log_logmanager_offlinelogdirectorycount", "Data directories that failed.", failed
        broken = node.cleaner.broken_count
        about = "Compacted partitions that cannot be compacted."
        yield "kafka_log_logcleanermanager_uncleanable_partitions_count", about, broken
        open_files = sum(segment.is_open for log in logs for segment in log.segments)
        yield "ottla_open_segments", "Segments whose file is open.", open_files

    def _counters(self) -> Iterable[tuple[str, str, float]]:
        cleaner, scrubber = self._node.cleaner, self._node.scrubber
        yield "ottla_cleaner_passes", "Passes of the compactor.", cleaner.passes
        yield "ottla_cleaner_read_bytes", "Bytes the compactor read.", cleaner.bytes_read
        yield "ottla_cleaner_written_bytes", "Bytes the compactor wrote.", cleaner.bytes_written
        yield "ottla_scrub_segments", "Old segments that were read again.", scrubber.segments_read
        yield "ottla_scrub_damage", "Damaged places that were found in them.", scrubber.damage_found


def page(node: Node) -> bytes:
    """All numbers in Prometheus' text form."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast("Any", Numbers(node)))  # a collector by its shape
    return bytes(generate_latest(registry))


async def serve(node: Node, listener: Listener) -> None:
    """Answer ``GET /metrics`` until cancelled."""
    logger.info("metrics at port %d", listener.port)
    async with trio.open_nursery() as nursery:
        while True:
            stream = await listener.accept()
            nursery.start_soon(_answer, node, stream)


async def _answer(node: Node, stream: Stream) -> None:
    with contextlib.suppress(OSError, trio.ClosedResourceError), node.env.timeout(PATIENCE_S):
        asked = await _request_line(stream)
        if asked[:2] in ([b"GET", b"/metrics"], [b"GET", b"/"]):
            status, body = b"200 OK", page(node)
        else:
            status, body = b"404 Not Found", b"GET /metrics\n"
        head = (
            b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n"
        )
        await stream.send([head % (status, len(body)), body])
    stream.close()


async def _request_line(stream: Stream) -> list[bytes]:
    """Read a request's head; gives the words of its first line."""
    raw = b""
    buffer = bytearray(MAX_REQUEST_BYTES)
    while b"\r\n\r\n" not in raw and len(raw) < MAX_REQUEST_BYTES:
        count = await stream.receive_into(memoryview(buffer), PATIENCE_S)
        if count == 0:
            break
        raw += buffer[:count]
    return raw.split(b"\r\n", 1)[0].split()
