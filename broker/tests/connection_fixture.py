"""Connection in memory, and a dispatcher with a test's handlers, in virtual time."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import trio
import trio.testing

from ottla.broker.api_spec import ApiSpec, Endpoint
from ottla.broker.config.node_config import NodeConfig
from ottla.broker.dispatch import dispatcher
from ottla.broker.dispatch.dispatcher import Dispatcher
from ottla.broker.network.connection import Connection
from ottla.broker.services import QuotaHolder
from ottla.jobs.job import Job
from ottla.wire.api_keys import ApiKey, response_class, response_header_version
from ottla.wire.codec import compiler
from ottla.wire.codec.schema import Message
from ottla.wire.framing import encode_request
from ottla.wire.messages.headers import ResponseHeader

T = TypeVar("T")


class ConnectionEnv:
    """Part of `Env` that a connection needs. ``work`` advances the time as computing would."""

    def __init__(self) -> None:
        self.worked_ms = 0.0

    def work(self, ms: float) -> None:
        self.worked_ms += ms

    def now_ms(self) -> int:
        return 1_000_000 + int(self.monotonic_ms())

    def monotonic_ms(self) -> float:
        return trio.current_time() * 1000 + self.worked_ms

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)

    def timeout(self, seconds: float) -> Any:
        return trio.move_on_after(seconds)


class ClientStream:
    """Client side of a connection: sent and received bytes, and its disconnect."""

    def __init__(self, *, reads: bool = True) -> None:
        self.peer = "10.0.0.9"
        self.local = ("10.0.0.1", 9092)
        self.send_waits = self.receive_waits = 0
        self.reads = reads
        self.sends: list[bytes] = []
        self.is_closed = False
        self.receives = 0
        self.most_bytes = 2**31
        self._sent = bytearray()
        self._left = False
        self._changed = trio.Event()
        self._gone: Callable[[], None] | None = None

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def send_bytes(self, raw: bytes) -> None:
        self._sent += raw
        self._notify()

    def disconnect(self) -> None:
        self._left = True
        self._notify()
        if self._gone is not None:
            self._gone()

    def read_more(self) -> None:
        """Read a part: a waiting send continues to wait."""
        self._notify()

    async def receive_into(self, buffer: memoryview, timeout_s: float) -> int:
        self.receives += 1
        while not self._sent:
            if self.is_closed:
                raise trio.ClosedResourceError
            if self._left:
                return 0
            self.receive_waits += 1
            await self._changed.wait()
        count = min(len(self._sent), len(buffer), self.most_bytes)
        buffer[:count] = self._sent[:count]
        del self._sent[:count]
        return count

    async def send(self, chunks: Sequence[Any]) -> None:
        while not self.reads:
            self.send_waits += 1
            await self._changed.wait()
            if self.is_closed:
                raise trio.ClosedResourceError
        self.sends.append(b"".join(bytes(chunk) for chunk in chunks))

    def byte_counts(self) -> tuple[int, int] | None:
        return None

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        self._gone = callback

    def close(self) -> None:
        self.is_closed = True
        self._notify()

    @property
    def received(self) -> bytes:
        return b"".join(self.sends)

    def responses(self, key: ApiKey, version: int) -> list[tuple[int, Message]]:
        """Return (correlation id, response) of all received bytes, which must be complete frames of one API."""
        raw, out = self.received, []
        while raw:
            (size,) = struct.unpack_from(">i", raw)
            frame, raw = raw[4 : 4 + size], raw[4 + size :]
            header, pos = compiler.decode(ResponseHeader, response_header_version(key, version), frame)
            out.append((header.correlation_id, compiler.decode_exact(response_class(key), version, frame[pos:])))
        return out


def job_of(awaitable: Awaitable[T]) -> Job[T]:
    """Return a job that only waits."""
    return (yield awaitable)  # type: ignore[no-any-return]


class FakeListener:
    """Listener that accepts queued streams."""

    port = 9092

    def __init__(self) -> None:
        self.send, self.receive = trio.open_memory_channel[Any](10)

    async def accept(self) -> Any:
        return await self.receive.receive()

    def close(self) -> None:
        self.send.close()


class DispatcherFixture:
    """Dispatcher with a test's handlers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        self.env = ConnectionEnv()
        self.handlers: dict[str, Callable[[Any, Any], Any]] = {}
        config = NodeConfig(values=settings)
        self.services: Any = SimpleNamespace(
            env=self.env,
            config=config,
            log_creator=(),
            authorizer=None,
            audit=None,
            quota_holder=QuotaHolder(),
            remote_reads=None,
        )
        self.apis: dict[ApiKey, ApiSpec] = {}
        self.dispatcher = Dispatcher(self.services, self.apis)
        monkeypatch.setattr(dispatcher, "load_handler", self.handlers.__getitem__)

    def serve(self, key: ApiKey, handler: Callable[[Any, Any], Any], low: int = 0, high: int = 9, **more: Any) -> None:
        self.apis[key] = ApiSpec(key, low, high, Endpoint(key.name), Endpoint(key.name), **more)
        self.handlers[key.name] = handler

    def connection(self, line: ClientStream) -> Connection:
        return Connection(self.dispatcher, line)


def frame(key: ApiKey, version: int, number: int, body: Message) -> bytes:
    return encode_request(key, version, number, "me", body)


def in_virtual_time(work: Callable[[], Awaitable[None]]) -> None:
    """Run in virtual time; fail after an hour of it."""

    async def bounded() -> None:
        with trio.fail_after(3600):
            await work()

    trio.run(bounded, clock=trio.testing.MockClock(autojump_threshold=0))
