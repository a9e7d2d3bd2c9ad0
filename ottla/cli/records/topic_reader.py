"""Reader of a topic for ``ottla consume`` and ``topic export``: start and end offsets, filters, formats and output."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable
from functools import partial

from ottla.cli.errors import CommandFailed
from ottla.cli.records import record_format
from ottla.client.cluster_client import ClusterClient
from ottla.client.record_decoding import DecodedRecords
from ottla.runtime.blocking_env import BlockingEnv
from ottla.tools.json_records import record_to_json
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import Record

EARLIEST, LATEST = -2, -1
POLL_MS = 500


class TopicReader:
    """Reader of a topic's partitions that prints the matching records.

    Args:
        client: client of the cluster.
        options: parsed arguments of ``ottla consume``, or the same fields for an export.
        numbers: partition numbers to read.
        write: called with the bytes of printed records.

    Attributes:
        printed: number of records printed by `print_from`.
    """

    def __init__(
        self,
        client: ClusterClient,
        options: argparse.Namespace,
        numbers: list[int],
        write: Callable[[bytes], None],
    ) -> None:
        self._client = client
        self._options = options
        self._numbers = numbers
        self._write = write
        self.printed = 0
        self._env = BlockingEnv()
        self._committed = options.isolation == "read_committed"
        self._max_messages: int | None = options.max_messages

    async def _offset(self, number: int, timestamp: int) -> int:
        find = partial(self._client.list_offset, self._options.topic, number, timestamp, committed=self._committed)
        return await self._client.retry_while_leader_moves(find)

    async def _read(self, number: int, offset: int, wait_ms: int) -> DecodedRecords:
        """Fetch records of partition ``number`` from ``offset`` on; the leader waits up to ``wait_ms`` for new ones.

        Raises:
            CommandFailed: the offset is out of range.
            ProtocolError, OSError: the leader refused the request or cannot be reached for `LEADER_MOVE_TIMEOUT_MS`.
        """
        topic = self._options.topic
        read = partial(self._client.read_records, topic, number, offset, wait_ms, committed=self._committed)
        try:
            return await self._client.retry_while_leader_moves(read)
        except ProtocolError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            first, last = [await self._client.list_offset(topic, number, at) for at in (EARLIEST, LATEST)]
            raise CommandFailed(f"offset out of range: {topic}-{number} at {offset} ({first} to {last})") from None

    def _matching(self, records: Iterable[Record]) -> list[Record]:
        return [x for x in records if all(condition.matches(x) for condition in self._options.filter)]

    def _format(self, partition: int, record: Record) -> bytes:
        """Return the output line of a record, with its line end, in the form of ``--format`` or ``--output``."""
        options = self._options
        if options.format is not None:
            return record_format.format_record(options.format, options.topic, partition, record) + b"\n"
        if options.output == "json":
            return json.dumps(record_to_json(options.topic, partition, record)).encode() + b"\n"
        key = b"" if record.key is None else record.key + os.fsencode(options.key_separator)
        return key + (record.value or b"") + b"\n"

    # ------------------------------------------------------------------ start and end

    async def _time_offset(self, number: int, time_ms: int) -> int:
        """Return the first offset of partition ``number`` with a timestamp >= ``time_ms``, else the end offset."""
        offset = await self._offset(number, time_ms)
        return offset if offset >= 0 else await self._offset(number, LATEST)

    async def starts(self) -> dict[int, int]:
        """Request the offset of each partition at which reading starts, as the options select it."""
        options = self._options
        if options.offset is not None:
            return dict.fromkeys(self._numbers, options.offset)
        if options.from_time is not None:
            return {n: await self._time_offset(n, options.from_time) for n in self._numbers}
        where = EARLIEST if options.from_beginning or options.exit or options.until is not None else LATEST
        return {n: await self._offset(n, where) for n in self._numbers}

    async def ends(self) -> dict[int, int] | None:
        """Request the offset of each partition before which reading ends; return None to follow the topic.

        There is an end with ``--exit``, and with ``--until`` once that time has come.
        """
        until = self._options.until
        if until is not None and (self._options.exit or self._env.now_ms() >= until):
            return {n: await self._time_offset(n, until) for n in self._numbers}
        return {n: await self._offset(n, LATEST) for n in self._numbers} if self._options.exit else None

    # ------------------------------------------------------------------ printing

    async def print_tail(self, count: int) -> dict[int, int]:
        """Print the last ``count`` matching records of all partitions together, ordered by timestamp.

        Returns:
            The end offset of each partition at the start, from which reading may go on.

        Raises:
            CommandFailed: an offset is out of range.
            ProtocolError, OSError: a leader refused a request or cannot be reached for `LEADER_MOVE_TIMEOUT_MS`.
        """
        ends = {n: await self._offset(n, LATEST) for n in self._numbers}
        found = [(n, x) for n in self._numbers for x in await self._last(n, ends[n], count)]
        found.sort(key=lambda item: (item[1].timestamp_ms, item[0], item[1].offset))
        self._write(b"".join(self._format(n, x) for n, x in found[len(found) - min(count, len(found)) :]))
        return ends

    async def _last(self, number: int, end: int, count: int) -> list[Record]:
        """Return the last ``count`` matching records of a partition before offset ``end``, by offset; or all there are.

        Transaction markers, compaction and filters leave gaps, so the range to read grows until it has enough records.
        """
        first, size = await self._offset(number, EARLIEST), count
        while True:
            at, out = max(first, end - size), list[Record]()
            is_whole = at == first
            while at < end:
                found = await self._read(number, at, 0)
                out += self._matching(x for x in found.records if x.offset < end)
                if found.next_offset == at:
                    break
                at = found.next_offset
            if is_whole or len(out) >= count:
                return out[len(out) - min(count, len(out)) :]
            size *= 4

    async def print_from(self, positions: dict[int, int], ends: dict[int, int] | None) -> None:
        """Print matching records from offsets ``positions`` up to and without ``ends``; None follows the topic.

        ``positions`` is updated to the next offset of each partition, and ``ends`` is lowered to it where no further
        record can be read. Reading also ends after ``--max-messages`` records, or when the time of ``--until`` has
        come and all records before it are printed.

        Raises:
            CommandFailed: an offset is out of range.
            ProtocolError, OSError: a leader refused a request or cannot be reached for `LEADER_MOVE_TIMEOUT_MS`.
        """
        while self._max_messages != 0:
            if ends is None and self._options.until is not None:
                ends = await self.ends()
            if ends is not None and all(positions[n] >= ends[n] for n in self._numbers):
                return
            for number in self._numbers:
                if ends is not None and positions[number] >= ends[number]:
                    continue
                found = await self._read(number, positions[number], POLL_MS // len(self._numbers) + 1)
                records = [x for x in found.records if ends is None or x.offset < ends[number]]
                if self._print(number, records):
                    return
                if found.next_offset == positions[number] and ends is not None:
                    ends[number] = positions[number]
                positions[number] = found.next_offset

    def _print(self, number: int, records: list[Record]) -> bool:
        """Print the matching records of a partition that are older than ``--until``, up to ``--max-messages`` in all.

        Returns:
            True once ``--max-messages`` records have been printed.
        """
        until = self._options.until
        matching = self._matching(x for x in records if until is None or x.timestamp_ms < until)
        chosen = matching if self._max_messages is None else matching[: self._max_messages]
        if chosen:
            self.printed += len(chosen)
            self._write(b"".join(self._format(number, x) for x in chosen))
        if self._max_messages is not None:
            self._max_messages -= len(chosen)
        return self._max_messages == 0
