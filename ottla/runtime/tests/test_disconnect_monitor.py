"""Disconnect monitor: notification by the kernel, even with unread requests."""

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
@pytest.mark.parametrize("unread", [b"", b"requests that are not read yet"])
def test_on_disconnect_is_called_once_with_unread_data(leave: Callable[[socket.socket], None], unread: bytes) -> None:
    async def run() -> None:
        client, stream = await pair(RealEnv())
        gone = trio.Event()
        callbacks = 0

        def count_callback() -> None:
            nonlocal callbacks
            callbacks += 1
            gone.set()

        client.sendall(unread)
        stream.on_disconnect(count_callback)
        await trio.testing.wait_all_tasks_blocked()
        assert callbacks == 0
        leave(client)
        with trio.fail_after(60):
            await gone.wait()
        await trio.lowlevel.checkpoint()
        stream.close()
        client.close()
        await trio.lowlevel.checkpoint()
        assert callbacks == 1

    trio.run(run)


def test_on_disconnect_after_disconnection_is_called() -> None:
    async def run() -> None:
        client, stream = await pair(RealEnv())
        client.close()
        gone = trio.Event()
        stream.on_disconnect(gone.set)
        with trio.fail_after(60):
            await gone.wait()
        stream.close()

    trio.run(run)


def test_on_disconnect_reused_descriptor_does_not_call_earlier_callback() -> None:
    async def run() -> None:
        env = RealEnv()
        callbacks: list[str] = []
        client, stream = await pair(env)
        number = stream.detach().fileno()
        stream.on_disconnect(lambda: callbacks.append("first"))
        stream.close()
        client.close()
        second_client, second = await pair(env)
        assert number in (second.detach().fileno(), second_client.fileno())
        gone = trio.Event()
        second.on_disconnect(gone.set)
        second_client.close()
        with trio.fail_after(60):
            await gone.wait()
        second.close()
        assert callbacks == []

    trio.run(run)


def test_disconnect_monitor_works_in_consecutive_runs() -> None:
    env = RealEnv()

    async def run() -> None:
        client, stream = await pair(env)
        gone = trio.Event()
        stream.on_disconnect(gone.set)
        client.close()
        with trio.fail_after(60):
            await gone.wait()
        stream.close()

    trio.run(run)
    trio.run(run)


def test_on_disconnect_failing_callback_is_logged_and_next_is_called(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        env, gone = RealEnv(), trio.Event()

        def fail() -> None:
            raise AssertionError("in a system task")

        for callback in (fail, gone.set):
            client, stream = await pair(env)
            stream.on_disconnect(callback)
            client.close()
            await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(60):
            await gone.wait()

    trio.run(run)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Disconnect callback failed"]
