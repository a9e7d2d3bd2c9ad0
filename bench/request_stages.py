"""CPU time of the stages of a Produce request of one record, each stage alone in this process.

``python -m bench.request_stages``. The smallest of several runs counts, so the caches are warm: beside clients on the
same cores a request takes about half as much again. The log is a real one in a temporary directory; sockets are of the
loopback interface, and the share of the other end is left out where it can be separated.
"""

from __future__ import annotations

import argparse
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from bench.build_comparison import produce_frame
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.network.connection import Connection
from ottla.broker.replication.hosted_partition import HostedPartition, IsrDependencies
from ottla.broker.tests.handler_fixture import HandlerFixture, topic_id_of
from ottla.controller.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from ottla.env.env import FOREVER_S
from ottla.log.log_append import LogAppendInfo
from ottla.log.log_config import LogConfig
from ottla.log.log_validator import parse_single_batch
from ottla.log.recovery.log_loader import create_log
from ottla.runtime.disconnect_monitor import DisconnectMonitor
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.real_env import RealEnv
from ottla.runtime.real_stream import RealStream

RUNS = 7
TOPIC = "small"


class RepeatingStream:
    """`Stream` without a socket that receives one request ``count`` times and then its end, and discards responses."""

    peer, local, send_waits, receive_waits = "127.0.0.1", ("127.0.0.1", 9092), 0, 0

    def __init__(self, frame: bytes, count: int) -> None:
        self._frame, self._left = frame, count

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        """Copy the request into ``buffer`` and return its size; 0 after ``count`` calls."""
        if not self._left:
            return 0
        self._left -= 1
        buffer[: len(self._frame)] = self._frame
        return len(self._frame)

    async def send(self, chunks: Sequence[Any]) -> None:
        """Discard a response."""

    def byte_counts(self) -> tuple[int, int] | None:
        """Return None: the bytes are not counted."""
        return None

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Do nothing: the stream is never disconnected."""

    def close(self) -> None:
        """Do nothing: the stream has no descriptor."""


def measure(work: Callable[[int], Awaitable[None]], count: int) -> float:
    """Run ``work(count)`` `RUNS` times on an event loop; return the least CPU time of a run in us per repetition."""

    async def run() -> float:
        began = time.process_time_ns()
        await work(count)
        return (time.process_time_ns() - began) / count / 1000

    return min(trio.run(run) for _ in range(RUNS))


def create_partition(directory: str) -> tuple[HandlerFixture, HostedPartition]:
    """Return the services of a broker, and a partition that it leads, whose log is a real one in ``directory``."""
    node, registration = HandlerFixture(), PartitionRegistration((1,), (1,), 1, 3, 0)
    node.services.env = env = RealEnv()
    log = create_log(RealDisk(), f"{directory}/{TOPIC}-0", TOPIC, 0, topic_id_of(TOPIC), LogConfig(), env.now_ms())
    rules = IsrDependencies(30_000, lambda broker, epoch: True)
    purgatory = node.services.purgatory
    replica = HostedPartition(log, log.topic_id, purgatory.check_and_complete, lambda r: None, rules)
    replica.apply_partition_state(1, registration, env.now_ms())
    node.hosted.replicas[TOPIC, 0] = replica
    node.hosted.image = MetadataImage({TOPIC: TopicImage(TOPIC, log.topic_id, {0: registration})})
    return node, replica


def request_stages(node: HandlerFixture, replica: HostedPartition, count: int) -> dict[str, float]:
    """Return the CPU time of a Produce request without sockets, and of each of its stages, in us per request, by name.

    Totals are of a handled and of a prepared request. Times are the least of `RUNS` runs with ``count`` requests each.
    """
    frame = produce_frame()

    async def serve(repetitions: int, *, prepares: bool = True) -> None:
        connection = Connection(Dispatcher(node.services), RepeatingStream(frame, repetitions))
        connection._peer.prepares_requests = prepares
        await connection.serve()

    async def handle(repetitions: int) -> None:
        await serve(repetitions, prepares=False)

    async def stream_only(repetitions: int) -> None:
        stream, view = RepeatingStream(frame, repetitions), memoryview(bytearray(4096))
        while await stream.receive_into(view, FOREVER_S):
            await stream.send([b""])

    handled, prepared, stream = (measure(work, count) for work in (handle, serve, stream_only))
    batch = bytes(frame[-173:-3])
    append, written = HostedPartition.append, LogAppendInfo(0, 0, -1)
    HostedPartition.append = lambda *values, **more: written  # type: ignore[method-assign]
    try:
        without_append = measure(serve, count)
    finally:
        HostedPartition.append = append  # type: ignore[method-assign]

    async def parse(repetitions: int) -> None:
        for _ in range(repetitions):
            parse_single_batch(batch)

    segment = replica.log.segments.active
    file = segment.file

    async def write(repetitions: int) -> None:
        for _ in range(repetitions):  # at the log end, as an append does
            file.pwrite(batch, segment.size_bytes)
            segment.size_bytes += len(batch)

    writing = measure(write, count)
    return {
        "whole request by its handler": handled - stream,
        "whole request prepared": prepared - stream,
        "  connection, request, response": without_append - stream - measure(parse, count),
        "  batch header, checks, append": prepared - without_append + measure(parse, count) - writing,
        "  pwrite": writing,
    }


def stream_stages(count: int) -> dict[str, float]:
    """Return the CPU time of socket calls, stream and event loop in us per request, by name."""
    frame, response = produce_frame(), bytes(56)
    view, answer = memoryview(bytearray(4096)), bytearray(4096)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def calls(repetitions: int) -> None:
        for _ in range(repetitions):
            client.send(frame)
            server.recv_into(view)
            server.send(response)
            client.recv_into(answer)

    bare = measure(calls, count)
    monitor = DisconnectMonitor()
    stream = RealStream(server, monitor)

    async def through_stream(repetitions: int) -> None:
        for _ in range(repetitions):
            client.send(frame)
            await stream.receive_into(view, FOREVER_S)
            await stream.send([response])
            client.recv_into(answer)

    async def turns(repetitions: int) -> None:
        for _ in range(repetitions):
            await trio.lowlevel.checkpoint()

    through = measure(through_stream, count)
    turn = measure(turns, count)
    server.close()
    client.close()
    return {
        "recv and send, half of both ends' calls": bare / 2,
        "stream, its turns included": through - bare,
        "a turn of the event loop": turn,
    }


def main() -> None:
    """Measure all stages and print the us of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        stages = request_stages(*create_partition(directory), options.requests)
    stages |= stream_stages(options.requests)
    for name, microseconds in stages.items():
        print(f"{name:42} {microseconds:6.1f} us")


if __name__ == "__main__":
    main()
