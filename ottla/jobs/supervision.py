"""Supervision of background tasks: failures are logged, and by `supervise` the task is restarted.

A failed assertion is not caught: it stops the node.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn

from ottla.env.env import Env

logger = logging.getLogger("ottla.upkeep")
MIN_BACKOFF_S = 1.0
MAX_BACKOFF_S = 60.0
STABLE_AFTER_S = 600.0
"""Run time after which a failure of a task resets its restart backoff."""


async def supervise(env: Env, name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run the task ``work`` until it returns; log each failure under ``name`` and restart it with exponential backoff.

    Raises:
        AssertionError: a failed assertion of the task, or an exception group with one. BaseException: cancellation.
    """
    pause_s = MIN_BACKOFF_S
    while True:
        began_ms = env.monotonic_ms()
        try:
            await work()
        except Exception as error:
            if is_broken_invariant(error):
                raise
            if env.monotonic_ms() - began_ms > STABLE_AFTER_S * 1000:
                pause_s = MIN_BACKOFF_S
            logger.exception("%s failed, restarting in %d s", name, pause_s)
        else:
            return
        await env.sleep(pause_s)
        pause_s = min(pause_s * 2, MAX_BACKOFF_S)


async def run_logging_failure(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run the task ``work`` once; log its failure under ``name`` instead of raising it.

    Raises:
        AssertionError: a failed assertion of the task, or an exception group with one. BaseException: cancellation.
    """
    try:
        await work()
    except Exception as error:
        if is_broken_invariant(error):
            raise
        logger.exception("%s failed", name)


def is_broken_invariant(error: BaseException) -> bool:
    """Return True if an error, or an error in an exception group, is an AssertionError, which stops the node."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_broken_invariant(x) for x in error.exceptions)
    return isinstance(error, AssertionError)


def raise_unwrapped(error: BaseException) -> NoReturn:
    """Raise ``error``, or the only exception within (nested) exception groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    raise error
