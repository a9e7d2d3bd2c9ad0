"""Deletion of the renamed directories of deleted partitions, after a delay for active reads.

Source: ``LogManager.deleteLogs``, ``log.segment.delete.delay.ms`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial

import trio

from ottla.env.disk import is_transient
from ottla.env.env import Env, ThreadPool
from ottla.log.directory.directory_listing import delete_partition_dir

logger = logging.getLogger("ottla.files")


class DeletedLogRemover:
    """Queue of renamed partition directories to delete, oldest first."""

    def __init__(self, env: Env, delay_ms: int) -> None:
        self._env = env
        self._delay_ms = delay_ms
        self._due: deque[tuple[float, str]] = deque()
        self._more = trio.Event()

    def schedule(self, path: str) -> None:
        """Schedule the deletion of a directory: responses may still use its files.

        The delay is the broker's ``log.segment.delete.delay.ms``, not ``file.delete.delay.ms`` of the topic.
        """
        self._due.append((self._env.monotonic_ms() + self._delay_ms, path))
        self._more.set()

    async def run(self) -> None:
        """Delete the due directories, until cancelled; the remaining ones are deleted at the next start.

        A transient error delays the deletion again. After any other the directory is left to the next start, with a
        warning.
        """
        while True:
            while self._due:
                at_ms, path = self._due[0]
                await self._env.sleep(max(at_ms - self._env.monotonic_ms(), 0) / 1000)
                self._due.popleft()
                try:
                    await self._env.in_thread(partial(delete_partition_dir, self._env.disk, path), ThreadPool.REMOVAL)
                except OSError as error:
                    if is_transient(error):
                        self.schedule(path)
                        continue
                    logger.warning("Failed to delete the directory of a deleted partition: %r (%s)", path, error)
            self._more = trio.Event()
            await self._more.wait()
