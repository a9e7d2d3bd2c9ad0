"""Calls of blocking functions from tasks of asyncio or trio; each runs in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

import trio

T = TypeVar("T")


async def run_to_end_in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, under trio or asyncio; return its result or raise its exception.

    A cancelled task still waits for the end of ``work``. Under asyncio it is cancelled then, and the result or
    exception is dropped; under trio it gets the result, and is cancelled at its next checkpoint.
    """
    if trio.lowlevel.in_trio_task():
        with trio.CancelScope(shield=True):
            return await trio.to_thread.run_sync(work)
    future = _start_in_thread(work)
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        future.exception()  # retrieved: asyncio logs an error that nothing has read
        raise asyncio.CancelledError
    return future.result()


async def run_in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread, under trio or asyncio; return its result or raise its exception.

    If the task is cancelled, it does not wait: the thread goes on, and its result is dropped.
    """
    if trio.lowlevel.in_trio_task():
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    return await _start_in_thread(work)


def _start_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Start ``work`` in a daemon thread and return the future of its result.

    Not `asyncio.to_thread`, since `asyncio.run` waits at its end for the threads of that function.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: Any) -> None:
        if future.done():  # cancelled
            return
        try:
            future.set_result(result.unwrap())
        except Exception as error:  # noqa: BLE001,RUF100 - handed to the task that waits
            future.set_exception(error)

    def deliver(result: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(finish, result)

    trio.lowlevel.start_thread_soon(work, deliver)
    return future
