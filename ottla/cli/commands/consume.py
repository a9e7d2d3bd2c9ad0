"""``ottla consume``: print a topic's records."""

from __future__ import annotations

import argparse
import json
import os
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
from ottla.cli.records.json_records import record_to_json
from ottla.cli.terminal import write_bytes
from ottla.client.cluster_client import ClusterClient
from ottla.client.record_decoding import DecodedRecords
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch.records import Record

TEXT = """Prints records as they come, without joining a group: from the end of the topic on, or with --exit from its
beginning up to where it ends now. Keys and values are printed byte for byte.

With -o json each record is one line. Bytes that are not UTF-8 are base64, in key_base64, value_base64 and
headers_base64; null is null.

examples:
  ottla consume events                             follow from now on
  ottla consume events --exit                      print what is there
  ottla consume events --from-beginning            print what is there, and follow
  ottla consume events --offset 100 -o json
  ottla consume events --isolation read_committed  only what transactions have committed
"""
EARLIEST, LATEST = -2, -1
POLL_MS = 500


def _format_record(topic: str, partition: int, record: Record, options: argparse.Namespace) -> bytes:
    """Return the line of a record."""
    if options.output == "json":
        return json.dumps(record_to_json(topic, partition, record)).encode() + b"\n"
    key = b"" if record.key is None else record.key + os.fsencode(options.key_separator)
    return key + (record.value or b"") + b"\n"


async def _read(
    client: ClusterClient, options: argparse.Namespace, number: int, offset: int, wait_ms: int
) -> DecodedRecords:
    """Read records of a partition.

    Raises:
        CommandFailed: the offset is before the first record or after the last.
    """
    committed = options.isolation == "read_committed"
    read = partial(client.read_records, options.topic, number, offset, wait_ms, committed=committed)
    try:
        return await retry_while_leader_moves(client, read)
    except ProtocolError as error:
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise
        first, last = [await client.list_offset(options.topic, number, at) for at in (EARLIEST, LATEST)]
        raise CommandFailed(f"offset out of range: {options.topic}-{number} at {offset} ({first} to {last})") from None


async def _consume(client: ClusterClient, options: argparse.Namespace) -> None:
    numbers = sorted(p.partition_index for p in (await require_topic(client, options.topic)).partitions)
    if options.partition is not None:
        require_partition(options.topic, numbers, options.partition)
        numbers = [options.partition]
    where = EARLIEST if options.from_beginning or options.exit else LATEST
    committed = options.isolation == "read_committed"

    async def offset(number: int, timestamp: int) -> int:
        find = partial(client.list_offset, options.topic, number, timestamp, committed=committed)
        return await retry_while_leader_moves(client, find)

    at = {n: options.offset if options.offset is not None else await offset(n, where) for n in numbers}
    ends = {n: await offset(n, LATEST) for n in numbers} if options.exit else {}
    left = options.max_messages
    while left != 0 and (not options.exit or any(at[n] < ends[n] for n in numbers)):
        for number in numbers:
            if options.exit and at[number] >= ends[number]:
                continue
            found = await _read(client, options, number, at[number], POLL_MS // len(numbers) + 1)
            records = found.records if left is None else found.records[:left]
            if records:
                write_bytes(b"".join(_format_record(options.topic, number, x, options) for x in records))
            if left is not None:
                left -= len(records)
                if left == 0:
                    return
            if found.next_offset == at[number] and options.exit:
                ends[number] = at[number]
            at[number] = found.next_offset


def run(arguments: list[str]) -> int:
    """Print records; gives the exit status."""
    parser = command_parser("consume", TEXT)
    add_connection(parser, "json: one object a line (default: text)")
    parser.add_argument("topic", help="the topic's name")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="from the first record on")
    start.add_argument("--offset", type=integer(0, MAX_INT64), metavar="N", help="from this offset of each partition")
    parser.add_argument("--partition", type=integer(0), metavar="N", help="only this partition")
    parser.add_argument("--max-messages", "-n", type=integer(0), metavar="N", help="stop after N records")
    parser.add_argument(
        "--exit", action="store_true", help="stop where the topic ends now; starts from the first record by default"
    )
    parser.add_argument(
        "--isolation",
        choices=["read_uncommitted", "read_committed"],
        default="read_uncommitted",
        help="whether to print records of transactions that are open or were aborted (default: read_uncommitted)",
    )
    parser.add_argument("--key-separator", default="\t", help="printed between key and value (default: a tab)")
    options = parser.parse_args(arguments)
    return run_with_client(options, lambda client: _consume(client, options))
