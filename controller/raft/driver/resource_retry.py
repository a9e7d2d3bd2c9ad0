"""Retries after a shortage of file descriptors or memory, which is not a disk failure and must not stop a voter.

Descriptors for the files of the metadata log are reserved (`ottla.env.disk.Disk.private`). The remaining cases: the
whole machine is short (ENFILE, ENOMEM), or the reserve is in use.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.env.disk import is_transient
from ottla.env.env import Env

logger = logging.getLogger("ottla.controller")

RETRY_S = 0.1
LOG_EVERY_ATTEMPTS = 100
"""Number of failed attempts between two log messages."""

T = TypeVar("T")


def first_os_error(error: BaseException) -> OSError:
    """Return the first error, which must be an OSError, in a possibly nested exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, OSError)
    return error


async def retry_on_shortage(env: Env, work: Callable[[], Awaitable[T]]) -> T:
    """Await ``work()`` and return its result; retry every 100 ms while the process is short of descriptors or memory.

    Args:
        env: the clock.
        work: changes no state if it fails for a shortage.

    Raises:
        OSError: an error of the disk.
    """
    attempts = 0
    while True:
        try:
            return await work()
        except OSError as error:
            if not is_transient(error):
                raise
            if attempts % LOG_EVERY_ATTEMPTS == 0:
                logger.warning("Short of resources, retrying: %s", error)
        attempts += 1
        await env.sleep(RETRY_S)


async def retry_call_on_shortage(env: Env, work: Callable[[], T]) -> T:
    """Return the result of the synchronous ``work()``, which is called again as in `retry_on_shortage`."""

    async def call() -> T:
        return work()

    return await retry_on_shortage(env, call)
