"""What reaches the disk in the background: rolled segments are synced, high watermarks are noted.

Kafka's rule, and ours: an acknowledgement does not wait for the disk; a segment is synced once it is full, the rest
when the operating system sees fit. The recovery point says from where on a crash must be looked at.

Source: ``UnifiedLog.roll`` and ``LogManager`` checkpoints (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from ottla.log.directory import LogDirectory
from ottla.log.env import Env
from ottla.log.partition_log import PartitionLog

CHECKPOINT_EVERY_S = 5.0


class Flusher:
    """Syncs rolled segments and writes checkpoints every five seconds, when there is something to write."""

    def __init__(self, env: Env, directory: LogDirectory, fail: Callable[[OSError], None]) -> None:
        self._env = env
        self._directory = directory
        self._fail = fail
        self._noted: object = None

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            while True:
                await trio.sleep(CHECKPOINT_EVERY_S)
                for log in list(self._directory.logs.values()):
                    if not log.closed and log.recovery_point < log.active.base_offset:
                        await self._sync(log)
                self._checkpoint()
        except OSError as error:
            self._fail(error)

    async def _sync(self, log: PartitionLog) -> None:
        """Sync every segment but the active one."""
        end = log.active.base_offset
        segments = [s for s in log.unflushed() if s.base_offset < end]

        def sync() -> None:
            for segment in segments:
                segment.fsync()
            log.sync_names()

        await self._env.in_thread(sync)
        log.recovery_point = max(log.recovery_point, end)

    def _checkpoint(self) -> None:
        logs = self._directory.logs
        state = {at: (x.high_watermark, x.recovery_point, x.log_start_offset) for at, x in logs.items()}
        if state != self._noted:
            self._directory.write_checkpoints(sync=False)
            self._noted = state
