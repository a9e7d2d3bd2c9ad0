"""Background scrubbing: reads each rolled segment once a day, or as often as the rate allows; checks its batches' CRC.

``ottla.scrub.bytes.per.second`` sets the rate; 0 disables it. Corruption is logged with file and offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from ottla.broker.storage.log_dirs import LogDirs
from ottla.env.env import Env
from ottla.log.partition_log import PartitionLog
from ottla.log.recovery.scrub import list_sealed_segments, scrub_batches
from ottla.log.segment.log_segment import LogSegment

logger = logging.getLogger("ottla.scrub")
STEP_S = 1.0
SCRUB_INTERVAL_S = 24 * 3600.0


class Scrubber:
    """Background reader of all rolled segments that checks the CRC of their batches, at a limited rate.

    A damaged range is logged once, and added to `LogSegment.damaged_ranges`: reads of it fail with CORRUPT_MESSAGE from
    then on.
    """

    def __init__(self, env: Env, storage: LogDirs, bytes_a_second: Callable[[], int]) -> None:
        self._env = env
        self._log_dirs = storage
        self._bytes_per_second = bytes_a_second
        self.segments_read = 0
        self.damage_count = 0

    async def run(self) -> None:
        """Scrub all logs in rounds, at most one per `SCRUB_INTERVAL_S`, until cancelled."""
        while True:
            began_ms = self._env.monotonic_ms()
            for log, segment in self._cold_segments():
                await self._read(log, segment)
            took_s = (self._env.monotonic_ms() - began_ms) / 1000
            await self._env.sleep(max(SCRUB_INTERVAL_S - took_s, STEP_S))

    def _cold_segments(self) -> Iterator[tuple[PartitionLog, LogSegment]]:
        for log in self._log_dirs.logs():
            for segment in list_sealed_segments(log):
                yield log, segment

    async def _read(self, log: PartitionLog, segment: LogSegment) -> None:
        position: int | None = 0
        while position is not None:
            await self._env.sleep(STEP_S)
            rate = self._bytes_per_second()
            if rate <= 0:
                continue
            if log.closed or segment not in log.segments:
                return  # deleted or compacted meanwhile
            try:
                step = await self._env.in_thread(partial(scrub_batches, segment, position, int(rate * STEP_S)))
            except OSError as error:
                logger.warning("Failed to read segment %s.log for corruption: %s", segment.path, error)
                return
            if segment not in log.segments:
                return
            for damage in step.damaged_ranges:
                if (damage.position, damage.end) in segment.damaged_ranges:
                    continue  # found in an earlier round
                self.damage_count += 1
                segment.damaged_ranges.append((damage.position, damage.end))
                logger.critical(
                    "Corruption found in segment %s at bytes %d to %d: offset %d of %s-%d and the records after it in "
                    "this range cannot be read",
                    *(damage.path, damage.position, damage.end, damage.offset, log.topic, log.partition),
                )
            position = step.next_position
        self.segments_read += 1
