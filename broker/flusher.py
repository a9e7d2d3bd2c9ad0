"""What happens to files in the background: rolled segments are synced, high watermarks noted, old segments removed.

Kafka's rule, and ours: an acknowledgement does not wait for the disk; a segment is synced once it is full, the rest
when the operating system sees fit. The recovery point says from where on a crash must be looked at.

Source: ``UnifiedLog.roll`` and ``LogManager`` checkpoints (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ottla.log.directory import LogDirectory
from ottla.log.env import Env
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import due_start

CHECKPOINT_EVERY_S = 5.0
FIRST_RETENTION_S = 30.0
logger = logging.getLogger("ottla.files")


class Flusher:
    """Syncs rolled segments and writes checkpoints every five seconds, when there is something to write."""

    def __init__(
        self,
        env: Env,
        directory: LogDirectory,
        retention_every_ms: int,
        producer_expiration_ms: int,
        fail: Callable[[OSError], None],
    ) -> None:
        self._retention_every_ms = retention_every_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._env = env
        self._directory = directory
        self._fail = fail
        self._noted: object = None

    async def run(self) -> None:
        """Work until cancelled."""
        first_ms = min(FIRST_RETENTION_S * 1000, self._retention_every_ms)
        next_retention_ms = self._env.monotonic_ms() + first_ms
        try:
            while True:
                await trio.sleep(CHECKPOINT_EVERY_S)
                if self._env.monotonic_ms() >= next_retention_ms:
                    next_retention_ms = self._env.monotonic_ms() + self._retention_every_ms
                    await self.retain()
                for log in list(self._directory.logs.values()):
                    if not log.closed and log.recovery_point < log.active.base_offset:
                        await self._sync(log)
                self._checkpoint()
        except OSError as error:
            self._fail(error)

    async def retain(self) -> None:
        """Remove what retention no longer keeps: the log starts are noted before a file goes. Silent producers too."""
        due = []
        for log in list(self._directory.logs.values()):
            start = None if log.closed else due_start(log, self._env.now_ms())
            log.producers.expire(self._env.now_ms(), self._producer_expiration_ms)
            if start is not None and log.raise_start(start):
                logger.info("%s-%d starts at %d now", log.topic, log.partition, start)
                due.append(log)
            await trio.lowlevel.checkpoint()
        if due:
            self._checkpoint()
            for log in due:
                log.drop_below_start()

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
