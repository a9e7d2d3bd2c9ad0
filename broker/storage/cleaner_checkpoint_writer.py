"""Writer of the cleaner offset checkpoint of a log directory, in a thread instead of on the event loop.

Source: ``LogCleanerManager.updateCheckpoints``, ``CheckpointFile.write`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env, ThreadPool
from ottla.log.directory.log_directory import LogDirectory

MAX_WRITES = 2
"""Maximum number of writes in one call: a log whose cleaner offset changes steadily would never let it return."""


async def write_cleaner_checkpoint(env: Env, storage: LogDirs, directory: LogDirectory) -> None:
    """Write and sync the cleaner offsets of a log directory, at least those at the time of the call.

    Offsets that change meanwhile are written once more, then left to the next call. Nothing is written if the file has
    the offsets already.

    Raises:
        OSError: the write failed; a retry helps only if the error is transient.
    """
    checkpoints, writes = directory.checkpoints, 0
    async with storage.checkpoint_locks[directory.path]:
        while writes < MAX_WRITES:
            write = checkpoints.cleaner.prepare_write(checkpoints.cleaner_offsets())
            if write is None:
                break
            await env.in_thread(write.run, ThreadPool.SYNC)
            if checkpoints.cleaner.replace(write, checkpoints.cleaner_offsets()):  # else a newer file was written
                await env.in_thread(partial(directory.disk.fsync_dir, directory.path), ThreadPool.SYNC)
                checkpoints.cleaner.complete_write(write)
                writes += 1
