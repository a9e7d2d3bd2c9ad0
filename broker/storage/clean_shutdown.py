"""Clean shutdown of all log directories: several threads close the logs, so that the disk can combine their syncs."""

from __future__ import annotations

from functools import partial

import trio

from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env, ThreadPool

CLOSE_THREADS = 8


async def close_log_dirs(env: Env, storage: LogDirs, broker_epoch: int) -> None:
    """Flush and close all logs, then write the clean shutdown file of each log directory.

    Raises:
        OSError: the metadata directory failed.
    """
    await env.in_thread(storage.sync_new_partition_directories)
    async with trio.open_nursery() as nursery:
        for first in range(CLOSE_THREADS):
            nursery.start_soon(env.in_thread, partial(storage.close_logs, first, CLOSE_THREADS), ThreadPool.SYNC)
    await env.in_thread(partial(storage.close, broker_epoch))
