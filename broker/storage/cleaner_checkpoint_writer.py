"""Writes of the cleaner offsets of a log directory that wait for the disk without blocking the event loop.

Source: ``LogCleanerManager.updateCheckpoints``, ``CheckpointFile.write`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env, ThreadPool
from ottla.log.directory.log_directory import LogDirectory

MAX_WRITES = 2
"""Writes for one caller at most: a log with many gaps that is being copied would keep it waiting for ever."""


async def write_cleaner_checkpoint(env: Env, storage: LogDirs, directory: LogDirectory) -> None:
    """Wait until the disk has the cleaner offsets of a directory, those of now at least.

    Offsets that change meanwhile are written once more, then left to the next caller.

    Raises:
        OSError: final, unless the process is short of a resource.
    """
    checkpoints, writes = directory.checkpoints, 0
    async with storage.checkpoint_locks[directory.path]:
        while writes < MAX_WRITES:
            write = checkpoints.cleaner.prepare_write(checkpoints.cleaner_offsets())
            if write is None:
                break
            await env.in_thread(write.run, ThreadPool.SYNC)
            if checkpoints.cleaner.replace(write, checkpoints.cleaner_offsets()):  # else the file is newer by now
                await env.in_thread(partial(directory.disk.fsync_dir, directory.path), ThreadPool.SYNC)
                checkpoints.cleaner.complete_write(write)
                writes += 1
