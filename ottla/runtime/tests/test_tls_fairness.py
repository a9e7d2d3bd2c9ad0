"""Fairness of TLS: file reads beside the event loop, handshakes one step at a time, no traceback for malformed
input.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.env.disk import FileSlice
from ottla.env.tls import TlsConfig, TlsStore
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.real_env import RealEnv
from ottla.runtime.ssl_contexts import server_ssl_context
from ottla.runtime.tests.test_tls_stream import MIB, CertificateAuthority, over_tls, read
from ottla.runtime.tls_stream import TlsStream, _handshake_lock

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificates with openssl")


class ThreadRecordingFile:
    """File that records the threads of its reads."""

    def __init__(self, path: Path) -> None:
        self._file = RealDisk().open(str(path), readonly=True)
        self.read_in_threads: list[bool] = []

    def pread(self, size_bytes: int, offset: int) -> bytes:
        self.read_in_threads.append(threading.current_thread() is not threading.main_thread())
        return self._file.pread(size_bytes, offset)

    def fileno(self) -> int:
        return self._file.fileno()


@pytest.mark.parametrize("lies_in_memory", [True, False])
def test_tls_send_uncached_file_is_read_in_thread(
    authority: CertificateAuthority,
    keys: TlsStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lies_in_memory: bool,
) -> None:
    """A slow disk would block all other connections."""
    size = MIB + 7
    path = tmp_path / "data"
    data = os.urandom(size)
    path.write_bytes(data)
    file: Any = ThreadRecordingFile(path)
    if not lies_in_memory:
        monkeypatch.setattr(os, "preadv", _on_the_disk)

    async def main(ours: TlsStream, theirs: Any) -> None:
        got: list[bytes] = []

        async def receive() -> None:
            got.append(await read(theirs, size))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await ours.send([FileSlice(file, 0, size)])
        assert got == [data]

    over_tls(main, TlsConfig(keys), TlsConfig(truststore=authority.truststore))
    assert all(file.read_in_threads)
    assert lies_in_memory or len(file.read_in_threads) == 5


def _on_the_disk(*_: Any) -> int:
    raise BlockingIOError


def hello(name: bytes) -> bytes:
    """Return the ClientHello of a client with a server name of eight bytes, which may be invalid."""
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="eightabc")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read().replace(b"eightabc", name)


def test_handshake_invalid_server_name_raises_without_traceback(
    keys: TlsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ssl module prints one for each: any client could fill the log."""
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    context = server_ssl_context(TlsConfig(keys))
    one, other = socket.socketpair()
    with one, other:
        other.sendall(hello(b"\xff\xfe\xfd\xfc" * 2))
        server = context.wrap_socket(one, server_side=True, do_handshake_on_connect=False)
        with pytest.raises(ssl.SSLError), server:
            server.do_handshake()
    assert reported == []
    server_ssl_context(TlsConfig(keys))
    sys.unraisablehook(ValueError("another"))  # type: ignore[arg-type]
    assert len(reported) == 1, "other errors are logged once"


def reset(port: int, data: bytes = b"") -> None:
    """Connect and reset the connection, as a port scanner does."""
    with socket.create_connection(("127.0.0.1", port), 10) as client:
        client.sendall(data)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("data", [b"", b"x"])
@pytest.mark.parametrize("has_tls", [True, False])
def test_accept_skips_reset_connections_and_yields(keys: TlsStore, has_tls: bool, data: bytes) -> None:
    """A single reset connection ended the node."""

    async def main() -> None:
        listener = await RealEnv().net.listen("127.0.0.1", 0, tls=TlsConfig(keys) if has_tls else None)
        for _ in range(30):
            reset(listener.port, data)
        iterations, numbers = list[int](), os.listdir("/proc/self/fd")

        async def count_iterations() -> None:
            while True:
                iterations.append(1)
                await trio.lowlevel.checkpoint()

        with socket.create_connection(("127.0.0.1", listener.port), 10) as client, trio.fail_after(120):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(count_iterations)
                stream: Any = await listener.accept()
                nursery.cancel_scope.cancel()
            assert stream.detach().getpeername() == client.getsockname()
            assert len(iterations) > 20
            stream.close()
        assert len(os.listdir("/proc/self/fd")) <= len(numbers), "closed connections leave no descriptor"
        listener.close()

    trio.run(main)


class HandshakeSocket:
    """TLS socket with a handshake of a single step."""

    def __init__(self, step: Callable[[], object]) -> None:
        self.do_handshake = step
        self.number = 0

    def fileno(self) -> int:
        return self.number

    def getpeercert(self) -> None:
        return None


def handshaking_stream(step: Callable[[], object]) -> TlsStream:
    stream = TlsStream.__new__(TlsStream)
    stream._tls, stream.local = HandshakeSocket(step), ("here", 1)  # type: ignore[assignment]
    return stream


def test_concurrent_handshakes_take_one_step_per_loop_iteration() -> None:
    """A thousand handshakes blocked the event loop for half a second: each step takes one or two milliseconds."""
    iteration, steps = [0], list[int]()

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(handshaking_stream(lambda: steps.append(iteration[0])).handshake)
            while len(steps) < 20:
                await trio.lowlevel.checkpoint()
                iteration[0] += 1

    trio.run(main)
    assert max(steps.count(each) for each in steps) <= 2, "the timer may run before or after them in an iteration"


def test_closed_stream_waiting_for_handshake_takes_no_step() -> None:
    """A closed socket has no TLS object for a handshake."""
    steps, ended = list[int](), list[str]()

    async def main() -> None:
        stream = handshaking_stream(lambda: steps.append(1))

        async def shake() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await stream.handshake()
            ended.append("closed")

        async with trio.open_nursery() as nursery, _handshake_lock():
            nursery.start_soon(shake)
            await trio.testing.wait_all_tasks_blocked()
            stream._tls.number = -1  # type: ignore[attr-defined]

    trio.run(main)
    assert (steps, ended) == ([], ["closed"])


def test_handshakes_of_nodes_in_other_threads_do_not_block_each_other() -> None:
    """A common lock would wake the connections of one node in the event loop of the other."""
    begun, over, seen = threading.Event(), threading.Event(), list[bool]()

    def step() -> None:
        begun.set()
        seen.append(over.wait(60))

    one = threading.Thread(target=trio.run, args=(handshaking_stream(step).handshake,), daemon=True)
    one.start()
    assert begun.wait(60)
    another = threading.Thread(target=trio.run, args=(handshaking_stream(over.set).handshake,), daemon=True)
    another.start()
    one.join(120)
    assert seen == [True]
