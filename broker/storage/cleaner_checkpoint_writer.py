"""How far the logs of a directory are compacted, brought to the disk while everybody else goes on.

Who reads the file after a power cut must find what was written last or before, and nothing torn: else offsets that are
missing in a log that is compacted no more would count as damage. So it is written aside and synced, in a thread, before
it takes the old one's place.

Source: ``LogCleanerManager.updateCheckpoints``, ``CheckpointFile.write`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env, ThreadPool
from ottla.log.directory.cleaner_checkpoint import on_checkpoint_synced, replace_checkpoint, write_temporary_file
from ottla.log.directory.log_directory import LogDirectory

MAX_WRITES = 2
"""How often at most for one who waits."""


async def write_cleaner_checkpoint(env: Env, storage: LogDirs, directory: LogDirectory) -> None:
    """Wait until the disk knows how far each log of a directory is compacted: what is so now, at least.

    What changes meanwhile is written once more, and then it is left to whoever asks next: a log with many holes that is
    being copied would keep everybody else waiting.

    Raises:
        OSError: final, unless the process is only short of something.
    """
    writings = 0
    async with storage.checkpoint_locks[directory.path]:
        while writings < MAX_WRITES and (points := directory.cleaner_offsets()) != directory.synced_cleaner_offsets:
            before = directory.written_cleaner_offsets
            await env.in_thread(partial(write_temporary_file, directory, points), ThreadPool.SYNC)
            if replace_checkpoint(directory, points, before):  # else there is something newer to write
                await env.in_thread(partial(directory.disk.fsync_dir, directory.path), ThreadPool.SYNC)
                on_checkpoint_synced(directory, points)
                writings += 1
