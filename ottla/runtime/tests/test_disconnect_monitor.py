"""The end of a connection is told by the kernel, also while unread requests lie in it."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest
import trio
import trio.testing

from ottla.runtime.real_env import RealEnv
from ottla.runtime.real_stream import RealStream


async def pair(env: RealEnv) -> tuple[socket.socket, RealStream]:
    listener = await env.net.listen("127.0.0.1", 0)
    client = socket.create_connection(("127.0.0.1", listener.port))
    stream = await listener.accept()
    listener.close()
    assert isinstance(stream, RealStream)
    return client, stream


def reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()


@pytest.mark.parametrize("leave", [socket.socket.close, reset, lambda s: s.shutdown(socket.SHUT_WR)])
@pytest.mark.parametrize("unread", [b"", b"requests nobody has read yet"])
def test_the_other_sides_end_is_told_once_though_nobody_reads(
    leave: Callable[[socket.socket], None], unread: bytes
) -> None:
    async def run() -> None:
        client, stream = await pair(RealEnv())
        gone = trio.Event()
        told = 0

        def tell() -> None:
            nonlocal told
            told += 1
            gone.set()

        client.sendall(unread)
        stream.on_disconnect(tell)
        await trio.testing.wait_all_tasks_blocked()
        assert told == 0
        leave(client)
        with trio.fail_after(10):
            await gone.wait()
        await trio.lowlevel.checkpoint()
        stream.close()
        client.close()
        await trio.lowlevel.checkpoint()
        assert told == 1

    trio.run(run)


def test_an_end_that_came_before_the_question_is_told_too() -> None:
    async def run() -> None:
        client, stream = await pair(RealEnv())
        client.close()
        gone = trio.Event()
        stream.on_disconnect(gone.set)
        with trio.fail_after(10):
            await gone.wait()
        stream.close()

    trio.run(run)


def test_a_descriptor_that_is_used_again_tells_nothing_of_its_predecessor() -> None:
    async def run() -> None:
        env = RealEnv()
        told: list[str] = []
        client, stream = await pair(env)
        number = stream.detach().fileno()
        stream.on_disconnect(lambda: told.append("first"))
        stream.close()
        client.close()
        second_client, second = await pair(env)
        assert number in (second.detach().fileno(), second_client.fileno())
        gone = trio.Event()
        second.on_disconnect(gone.set)
        second_client.close()
        with trio.fail_after(10):
            await gone.wait()
        second.close()
        assert told == []

    trio.run(run)


def test_one_run_after_another_can_watch() -> None:
    env = RealEnv()

    async def run() -> None:
        client, stream = await pair(env)
        gone = trio.Event()
        stream.on_disconnect(gone.set)
        client.close()
        with trio.fail_after(10):
            await gone.wait()
        stream.close()

    trio.run(run)
    trio.run(run)


def test_disconnect_callback_that_raises_is_logged_and_the_next_is_called(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        env, gone = RealEnv(), trio.Event()

        def fail() -> None:
            raise AssertionError("in a system task")

        for callback in (fail, gone.set):
            client, stream = await pair(env)
            stream.on_disconnect(callback)
            client.close()
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(10):
            await gone.wait()

    trio.run(run)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Disconnect callback failed"]
