"""Proxy in front of a node that counts requests and their latencies by API."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable

from ottla.wire.api_keys import ApiKey

SLOW_S = 0.4
"""Limit of a slow request: it waits for `fetch.max.wait.ms`, 500 ms, or behind one that does."""


def _median_ms(latencies_s: list[float]) -> float:
    return statistics.median(latencies_s) * 1000


class CountingProxy:
    """Proxy in a thread of this process: forwards connections from ``port`` to ``target_port``; times each request.

    Runs from entry to exit of a ``with`` statement.
    """

    def __init__(self, port: int, target_port: int) -> None:
        self._port = port
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self.latencies_s: dict[int, list[float]] = defaultdict(list)
        """By API key, in the order of the responses."""
        self.connections = 0

    def __enter__(self) -> CountingProxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", self._port))
        self._ready.set()
        self._loop.run_forever()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        node_reader, node_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        waiting: dict[bytes, tuple[int, float]] = {}

        def request(frame: bytes) -> None:
            waiting[frame[8:12]] = int.from_bytes(frame[4:6], "big"), time.monotonic()

        def response(frame: bytes) -> None:
            api_key, since = waiting.pop(frame[4:8])
            self.latencies_s[api_key].append(time.monotonic() - since)

        await asyncio.gather(_pump(reader, node_writer, request), _pump(node_reader, writer, response))

    def table(self) -> str:
        """Return a text with the number of connections and a line for each API.

        A line has number, median and sum of the latencies, and the number of requests of 400 ms and more.
        """
        lines = [f"{self.connections} connections"]
        for api_key, latencies in sorted(self.latencies_s.items()):
            slow = [one for one in latencies if one >= SLOW_S]
            line = f"{ApiKey(api_key).name:26} {len(latencies):7,} requests, median {_median_ms(latencies):7.2f} ms, "
            line += f"in all {sum(latencies):7.2f} s"
            if slow:
                line += f"; {len(slow):,} of {SLOW_S * 1000:.0f} ms and more, median {_median_ms(slow):.2f} ms"
            lines.append(line)
        return "\n".join(lines)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, note: Callable[[bytes], None]) -> None:
    try:
        while True:
            size = await reader.readexactly(4)
            frame = size + await reader.readexactly(int.from_bytes(size, "big"))
            note(frame)
            writer.write(frame)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
