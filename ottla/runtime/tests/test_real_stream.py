"""Real connections: large file ranges, slow readers, disconnections."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from ottla.env.disk import FileReadError, FileSlice, FileTruncatedError
from ottla.env.env import SocketBuffers
from ottla.runtime.real_disk import RealDisk
from ottla.runtime.real_env import RealEnv
from ottla.runtime.real_stream import RealStream

MIB = 1 << 20
SMALL = SocketBuffers(16384, 16384)


def make_file_slice(where: Path, size_bytes: int) -> FileSlice:
    path = where / "data"
    path.write_bytes(bytes(range(256)) * (size_bytes // 256))
    return FileSlice(RealDisk().open(str(path), readonly=True), 0, size_bytes)


def over_a_connection(
    main: Callable[[RealStream, socket.socket], Awaitable[None]], buffers: SocketBuffers = SMALL
) -> None:
    """Run a function with the two ends of a connection: the stream, and a blocking socket as the reader."""

    async def run() -> None:
        listener = await RealEnv().net.listen("127.0.0.1", 0, buffers)
        reader = socket.create_connection(("127.0.0.1", listener.port), 10)
        ours = await listener.accept()
        assert isinstance(ours, RealStream)
        with reader, trio.fail_after(60):
            try:
                await main(ours, reader)
            finally:
                ours.close()
                listener.close()

    trio.run(run)


def read(reader: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size and (more := reader.recv(min(size - len(out), MIB))):
        out += more
    return bytes(out)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connect_to_closed_port_raises_connection_refused(host: str) -> None:
    async def run() -> None:
        listener = await RealEnv().net.listen("127.0.0.1", 0)
        listener.close()
        with pytest.raises(ConnectionRefusedError) as caught:
            await RealEnv().net.connect(host, listener.port)
        assert caught.value.errno == errno.ECONNREFUSED

    trio.run(run)


@pytest.mark.parametrize("host", ["kafka..example", "x" * 64, "\u2603", "\ud800"])
def test_connect_invalid_host_name_raises_gaierror(host: str) -> None:
    """A broker may register any host name; a connection to it must not end the node."""

    async def run() -> None:
        with pytest.raises(socket.gaierror) as caught:
            await RealEnv().net.connect(host, 9092)
        assert caught.value.errno == socket.EAI_NONAME

    trio.run(run)


@pytest.mark.parametrize("size", [256, 40 * 1024, 700 * 1024, 5 * MIB])
def test_send_bytes_and_file_ranges_arrive_in_order(tmp_path: Path, size: int) -> None:
    part = make_file_slice(tmp_path, size)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        got: list[bytes] = []

        async def receive() -> None:
            got.append(await trio.to_thread.run_sync(read, reader, size + 6))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await ours.send([b"abc", part, b"def"])
        assert got[0] == b"abc" + bytes(range(256)) * (size // 256) + b"def"

    over_a_connection(main)


@pytest.mark.parametrize(
    ("size_bytes", "cached", "in_thread"),
    [
        (MIB, {0, MIB - 1}, False),
        (MIB, set(), True),
        (MIB, {0}, True),
        (MIB, {MIB - 1}, True),
        (2 * MIB, {0, 2 * MIB - 1}, True),
        (MIB // 4, set(), False),
    ],
)
def test_send_uses_thread_for_large_or_uncached_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int, cached: set[int], in_thread: bool
) -> None:
    part = make_file_slice(tmp_path, size_bytes)

    def preadv(descriptor: int, buffers: list[bytearray], offset: int, flags: int) -> int:
        assert (len(buffers[0]), flags) == (1, os.RWF_NOWAIT)
        if offset not in cached:
            raise BlockingIOError
        return 1

    monkeypatch.setattr(os, "preadv", preadv)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        lent: list[bool] = []
        in_loop = ours._send_some

        def send_some(*arguments: Any) -> int:
            lent.append(ours._lent)
            return in_loop(*arguments)

        monkeypatch.setattr(ours, "_send_some", send_some)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send, [b"abc", part])
            received = await trio.to_thread.run_sync(read, reader, size_bytes + 3)
        assert received == b"abc" + bytes(range(256)) * (size_bytes // 256)
        assert lent[0] == in_thread

    over_a_connection(main, SocketBuffers())


def test_receives_that_wait_or_let_others_run_are_counted() -> None:
    async def main(ours: RealStream, reader: socket.socket) -> None:
        view = memoryview(bytearray(1))
        reader.sendall(bytes(40))
        with trio.fail_after(60):
            await trio.lowlevel.wait_readable(ours._sock)
            counts = []
            for _ in range(40):
                assert await ours.receive_into(view, 10) == 1
                counts.append(ours.receive_waits)
            assert (counts[0], counts[14], counts[15], counts[31], counts[39]) == (0, 0, 1, 2, 2)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ours.receive_into, view, 10)
                await trio.testing.wait_all_tasks_blocked()
                assert ours.receive_waits == 3
                reader.sendall(b"x")

    over_a_connection(main)


def test_send_to_paused_reader_holds_no_thread(tmp_path: Path) -> None:
    part = make_file_slice(tmp_path, 4 * MIB)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send, [part])
            with trio.fail_after(60):
                while not ours.send_waits:  # while the loop waits for buffer space, no state changes before a read
                    await trio.lowlevel.checkpoint()
            assert ours._threads is not None
            assert ours._threads.borrowed_tokens == 0
            assert await trio.to_thread.run_sync(read, reader, 4 * MIB) == bytes(range(256)) * (4 * MIB // 256)

    over_a_connection(main)


def test_send_without_free_thread_uses_event_loop(tmp_path: Path) -> None:
    part = make_file_slice(tmp_path, 4 * MIB)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        assert ours._threads is not None
        busy = [object() for _ in range(int(ours._threads.total_tokens))]
        for borrower in busy:
            ours._threads.acquire_on_behalf_of_nowait(borrower)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.send, [part])
            assert await trio.to_thread.run_sync(read, reader, 4 * MIB) == bytes(range(256)) * (4 * MIB // 256)

    over_a_connection(main)


def test_close_during_send_in_thread_breaks_it_and_keeps_descriptor_until_then(tmp_path: Path) -> None:
    part = make_file_slice(tmp_path, 4 * MIB)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        broken: list[BaseException] = []

        async def send() -> None:
            try:
                await ours.send([part])
            except (OSError, trio.ClosedResourceError) as error:
                broken.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while not ours._lent:
                await trio.lowlevel.checkpoint()
            number = ours.detach().fileno()
            ours.close()
            assert ours.detach().fileno() == number
        assert len(broken) == 1
        assert ours.detach().fileno() == -1

    over_a_connection(main)


def test_send_truncated_file_raises_file_truncated_error(tmp_path: Path) -> None:
    part = make_file_slice(tmp_path, 256)
    part.size_bytes = 2 * MIB

    async def main(ours: RealStream, reader: socket.socket) -> None:
        with pytest.raises(FileTruncatedError, match="truncated while it was sent"):
            await ours.send([part])

    over_a_connection(main)


def test_socket_buffers_have_configured_sizes() -> None:
    async def main(ours: RealStream, reader: socket.socket) -> None:
        # Linux doubles the requested size for its own bookkeeping.
        assert ours.detach().getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 50_000
        assert ours.detach().getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 60_000

    over_a_connection(main, SocketBuffers(50_000, 60_000))


def test_socket_buffers_minus_one_uses_system_default() -> None:
    with socket.socket() as plain:
        usual = plain.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        assert ours.detach().getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= usual

    over_a_connection(main, SocketBuffers())


class UnreadableFile:
    """File on a failed disk."""

    def __init__(self, part: FileSlice, code: int) -> None:
        self._file = part.file
        self._code = code

    def fileno(self) -> int:
        return self._file.fileno()

    def pread(self, _size_bytes: int, _offset: int) -> bytes:
        raise OSError(self._code, "broken")


@pytest.mark.parametrize("size_bytes", [1024, 64 * 1024, 2 * MIB])
@pytest.mark.parametrize("code", [errno.EIO, errno.EUCLEAN])
def test_send_unreadable_range_raises_file_read_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int, code: int
) -> None:
    part = make_file_slice(tmp_path, size_bytes)
    broken: Any = UnreadableFile(part, code)

    def sendfile(*_: int) -> int:
        raise OSError(code, "broken")

    monkeypatch.setattr(os, "sendfile", sendfile)

    async def main(ours: RealStream, _reader: socket.socket) -> None:
        with pytest.raises(FileReadError) as caught:
            await ours.send([b"head", FileSlice(broken, 0, size_bytes)])
        assert (caught.value.errno, caught.value.file) == (code, broken)

    over_a_connection(main)


@pytest.mark.parametrize("code", [errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOTCONN])
def test_send_over_broken_connection_raises_no_file_read_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def sendfile(*_: int) -> int:
        raise OSError(code, "gone")

    monkeypatch.setattr(os, "sendfile", sendfile)

    async def main(ours: RealStream, _reader: socket.socket) -> None:
        with pytest.raises(OSError, match="gone") as caught:
            await ours.send([make_file_slice(tmp_path, 64 * 1024)])
        assert not isinstance(caught.value, FileReadError)

    over_a_connection(main)


@pytest.mark.parametrize("size_bytes", [1024, 64 * 1024, 2 * MIB])
def test_send_range_truncated_during_send_raises_file_truncated_error(tmp_path: Path, size_bytes: int) -> None:
    part = make_file_slice(tmp_path, size_bytes)
    os.truncate(tmp_path / "data", size_bytes // 2)

    async def main(ours: RealStream, reader: socket.socket) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, read, reader, size_bytes // 2 if size_bytes > 32768 else 0)
            with pytest.raises(FileTruncatedError, match="truncated"):
                await ours.send([part])

    over_a_connection(main)


def test_byte_counts_are_those_of_the_kernel() -> None:
    async def main(ours: RealStream, reader: socket.socket) -> None:
        reader.sendall(b"x" * 300)
        received = 0
        while received < 300:
            received += await ours.receive_into(memoryview(bytearray(1000)), 10)
        await ours.send([b"y" * 700])
        assert read(reader, 700) == b"y" * 700
        counts = ours.byte_counts()
        assert counts is None or (counts[0], counts[1] <= 700) == (300, True)
        ours.close()
        assert ours.byte_counts() is None

    over_a_connection(main)
