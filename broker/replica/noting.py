"""How far the logs of a directory are compacted, brought to the disk while everybody else goes on.

Who reads the file after a power cut must find what was written last or before, and nothing torn: else offsets that are
missing in a log that is compacted no more would count as damage. So it is written aside and synced, in a thread, before
it takes the old one's place.

Source: ``LogCleanerManager.updateCheckpoints``, ``CheckpointFile.write`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.broker.replica.storage import Storage
from ottla.log.directory import LogDirectory
from ottla.world.env import Env, Lane


async def note_compaction(env: Env, storage: Storage, directory: LogDirectory) -> None:
    """Wait until the disk knows how far each log of a directory is compacted.

    Raises:
        OSError: final, unless the process is only short of something.
    """
    async with storage.noting[directory.path]:
        while (points := directory.cleaner_points()) != directory.noted_cleaner_points:
            await env.in_thread(partial(directory.write_aside, points), Lane.SYNC)
            if points == directory.cleaner_points():  # else there is something newer to write
                directory.take_aside(points)
                await env.in_thread(partial(directory.disk.fsync_dir, directory.path), Lane.SYNC)
                directory.aside_is_synced(points)
