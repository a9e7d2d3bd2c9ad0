"""``ottla consume``: print a topic's records."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable
from functools import partial

from ottla.cli.arguments import MAX_INT64, command_parser, integer
from ottla.cli.common import (
    add_connection,
    require_partition,
    require_topic,
    retry_while_leader_moves,
    run_with_client,
)
from ottla.cli.errors import CommandFailed
from ottla.cli.records import record_filter, record_format
from ottla.cli.records.json_records import record_to_json
from ottla.cli.terminal import write_bytes
from ottla.client.cluster_client import ClusterClient
from ottla.client.record_decoding import DecodedRecords
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import Record

_CONVERSIONS = "\n".join(f"  %{letter}  {text}" for letter, (_, text) in record_format.CONVERSIONS.items())
TEXT = f"""Prints records as they come, without joining a group: from the end of the topic on, or with --exit from its
beginning up to where it ends now. Keys and values are printed byte for byte.

With -o json each record is one line. Bytes that are not UTF-8 are base64, in key_base64, value_base64 and
headers_base64; null is null. With --format each record is one line, too; \\n and \\t are a line end and a tab, and
{_CONVERSIONS}

A time is 1h30m (before now), 2026-01-31T12:00:00+01:00 (without a zone: UTC), milliseconds since 1970, or now.

examples:
  ottla consume events                             follow from now on
  ottla consume events --exit                      print what is there
  ottla consume events --from-beginning            print what is there, and follow
  ottla consume events --tail 10 --exit            print the last 10 records
  ottla consume events --from-time 1h --filter value~timeout
  ottla consume events --from-time 2026-01-31 --until 2026-02-01 --format '%T %k %v %h'
  ottla consume events --exit --filter value.order.id=7 -o json
  ottla consume events --isolation read_committed  only what transactions have committed
"""
EARLIEST, LATEST = -2, -1
POLL_MS = 500


class _TopicReader:
    """Reads partitions of a topic, and prints the records that match."""

    def __init__(self, client: ClusterClient, options: argparse.Namespace, numbers: list[int]) -> None:
        self._client = client
        self._options = options
        self._numbers = numbers
        self._env = BlockingEnv()
        self._committed = options.isolation == "read_committed"
        self._max_messages: int | None = options.max_messages

    async def _offset(self, number: int, timestamp: int) -> int:
        find = partial(self._client.list_offset, self._options.topic, number, timestamp, committed=self._committed)
        return await retry_while_leader_moves(self._client, find)

    async def _read(self, number: int, offset: int, wait_ms: int) -> DecodedRecords:
        """Read records of a partition.

        Raises:
            CommandFailed: the offset is before the first record or after the last.
        """
        topic = self._options.topic
        read = partial(self._client.read_records, topic, number, offset, wait_ms, committed=self._committed)
        try:
            return await retry_while_leader_moves(self._client, read)
        except ProtocolError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            first, last = [await self._client.list_offset(topic, number, at) for at in (EARLIEST, LATEST)]
            raise CommandFailed(f"offset out of range: {topic}-{number} at {offset} ({first} to {last})") from None

    def _matching(self, records: Iterable[Record]) -> list[Record]:
        return [x for x in records if all(condition.matches(x) for condition in self._options.filter)]

    def _format(self, partition: int, record: Record) -> bytes:
        """Return the line of a record."""
        options = self._options
        if options.format is not None:
            return record_format.format_record(options.format, options.topic, partition, record) + b"\n"
        if options.output == "json":
            return json.dumps(record_to_json(options.topic, partition, record)).encode() + b"\n"
        key = b"" if record.key is None else record.key + os.fsencode(options.key_separator)
        return key + (record.value or b"") + b"\n"

    # ------------------------------------------------------------------ start and end

    async def _time_offset(self, number: int, time_ms: int) -> int:
        """Return the offset of the first record that is not older than a time; the end if all are."""
        offset = await self._offset(number, time_ms)
        return offset if offset >= 0 else await self._offset(number, LATEST)

    async def starts(self) -> dict[int, int]:
        """Return the offset at which each partition is read first."""
        options = self._options
        if options.offset is not None:
            return dict.fromkeys(self._numbers, options.offset)
        if options.from_time is not None:
            return {n: await self._time_offset(n, options.from_time) for n in self._numbers}
        where = EARLIEST if options.from_beginning or options.exit or options.until is not None else LATEST
        return {n: await self._offset(n, where) for n in self._numbers}

    async def ends(self) -> dict[int, int] | None:
        """Return the offset before which each partition ends; None if more may come."""
        until = self._options.until
        if until is not None and (self._options.exit or self._env.now_ms() >= until):
            return {n: await self._time_offset(n, until) for n in self._numbers}
        return {n: await self._offset(n, LATEST) for n in self._numbers} if self._options.exit else None

    # ------------------------------------------------------------------ printing

    async def print_tail(self, count: int) -> dict[int, int]:
        """Print the last matching records by their times, and return where the partitions go on."""
        ends = {n: await self._offset(n, LATEST) for n in self._numbers}
        found = [(n, x) for n in self._numbers for x in await self._last(n, ends[n], count)]
        found.sort(key=lambda item: (item[1].timestamp_ms, item[0], item[1].offset))
        write_bytes(b"".join(self._format(n, x) for n, x in found[len(found) - min(count, len(found)) :]))
        return ends

    async def _last(self, number: int, end: int, count: int) -> list[Record]:
        """Return the last matching records of a partition; markers and gaps of compaction make it read more."""
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

    async def print_from(self, at: dict[int, int], ends: dict[int, int] | None) -> None:
        """Print matching records from offsets on, up to others or without end."""
        while self._max_messages != 0:
            if ends is None and self._options.until is not None:
                ends = await self.ends()
            if ends is not None and all(at[n] >= ends[n] for n in self._numbers):
                return
            for number in self._numbers:
                if ends is not None and at[number] >= ends[number]:
                    continue
                found = await self._read(number, at[number], POLL_MS // len(self._numbers) + 1)
                records = [x for x in found.records if ends is None or x.offset < ends[number]]
                if self._print(number, records):
                    return
                if found.next_offset == at[number] and ends is not None:
                    ends[number] = at[number]
                at[number] = found.next_offset

    def _print(self, number: int, records: list[Record]) -> bool:
        """Print records; return whether as many as asked for have been printed."""
        until = self._options.until
        matching = self._matching(x for x in records if until is None or x.timestamp_ms < until)
        chosen = matching if self._max_messages is None else matching[: self._max_messages]
        if chosen:
            write_bytes(b"".join(self._format(number, x) for x in chosen))
        if self._max_messages is not None:
            self._max_messages -= len(chosen)
        return self._max_messages == 0


async def _consume(client: ClusterClient, options: argparse.Namespace) -> None:
    numbers = sorted(p.partition_index for p in (await require_topic(client, options.topic)).partitions)
    if options.partition is not None:
        require_partition(options.topic, numbers, options.partition)
        numbers = [options.partition]
    for name in ("from_time", "until"):
        if getattr(options, name) is not None:
            # lazy: 0.4 ms, 7 kB: only with a time
            from ottla.cli.times import parse_time

            setattr(options, name, parse_time(getattr(options, name), BlockingEnv().now_ms()))
    reader = _TopicReader(client, options, numbers)
    if options.tail is None:
        await reader.print_from(await reader.starts(), await reader.ends())
        return
    at = await reader.print_tail(options.tail)
    if not options.exit:
        await reader.print_from(at, None)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("consume", TEXT)
    add_connection(parser, "json: one object a line (default: text)", ("text", "json"))
    parser.add_argument("topic", help="the topic's name")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="from the first record on")
    start.add_argument("--offset", type=integer(0, MAX_INT64), metavar="N", help="from this offset of each partition")
    start.add_argument("--from-time", metavar="TIME", help="from the first record that is not older")
    text = "from the last N records of all partitions, in the order of their times"
    start.add_argument("--tail", type=integer(0), metavar="N", help=text)
    text = "stop before the first record that is not older than TIME; starts from the first record by default"
    parser.add_argument("--until", metavar="TIME", help=text)
    parser.add_argument("--partition", type=integer(0), metavar="N", help="only this partition")
    parser.add_argument("--max-messages", "-n", type=integer(0), metavar="N", help="stop after N records")
    parser.add_argument(
        "--exit", action="store_true", help="stop where the topic ends now; starts from the first record by default"
    )
    text = record_filter.HELP
    parser.add_argument(
        "--filter",
        type=record_filter.parse_record_filter,
        action="append",
        default=[],
        metavar="FIELDopTEXT",
        help=text,
    )
    text = "print each record in this format, see above"
    parser.add_argument("--format", "-f", type=record_format.parse_record_format, metavar="FORMAT", help=text)
    parser.add_argument(
        "--isolation",
        choices=["read_uncommitted", "read_committed"],
        default="read_uncommitted",
        help="whether to print records of transactions that are open or were aborted (default: read_uncommitted)",
    )
    parser.add_argument("--key-separator", default="\t", help="printed between key and value (default: a tab)")
    return parser


def run(arguments: list[str]) -> int:
    """Print records; gives the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.tail is not None and options.until is not None:
        parser.error("--tail and --until exclude each other")
    if options.format is not None and options.output == "json":
        parser.error("--format and -o json exclude each other")
    return run_with_client(options, lambda client: _consume(client, options))
