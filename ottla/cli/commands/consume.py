"""``ottla consume``: print records of a topic without joining a group."""

from __future__ import annotations

import argparse

from ottla.cli.arguments import MAX_INT64, command_parser, integer
from ottla.cli.common import (
    add_connection,
    require_partition,
    require_topic,
    run_with_client,
)
from ottla.cli.records import record_filter, record_format
from ottla.cli.records.topic_reader import TopicReader
from ottla.cli.terminal import write_bytes
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv

_CONVERSIONS = "\n".join(f"  %{letter}  {text}" for letter, (_, text) in record_format.CONVERSIONS.items())
TEXT = f"""Print records as they arrive, without joining a group: from the end of the topic, or with --exit from its
beginning to its present end. Keys and values are printed byte for byte.

With -o json each record is one line. Bytes that are not UTF-8 are base64, in key_base64, value_base64 and
headers_base64. A missing key or value is null. With --format each record is also one line; \\n is a line end,
\\t a tab, and
{_CONVERSIONS}

A time is 1h30m (before now), 2026-01-31T12:00:00+01:00 (without a zone: UTC), milliseconds since 1970, or now.

examples:
  ottla consume events                             print new records
  ottla consume events --exit                      print the present records
  ottla consume events --from-beginning            print the present records, then new ones
  ottla consume events --tail 10 --exit            print the last 10 records
  ottla consume events --from-time 1h --filter value~timeout
  ottla consume events --from-time 2026-01-31 --until 2026-02-01 --format '%T %k %v %h'
  ottla consume events --exit --filter value.order.id=7 -o json
  ottla consume events --isolation read_committed  only records of committed transactions
"""


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
    reader = TopicReader(client, options, numbers, write_bytes)
    if options.tail is None:
        await reader.print_from(await reader.starts(), await reader.ends())
        return
    at = await reader.print_tail(options.tail)
    if not options.exit:
        await reader.print_from(at, None)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("consume", TEXT)
    add_connection(parser, "json: one object a line (default: text)", ("text", "json"))
    parser.add_argument("topic", help="name of the topic")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="start at the first record")
    start.add_argument(
        "--offset", type=integer(0, MAX_INT64), metavar="N", help="start at this offset of each partition"
    )
    start.add_argument("--from-time", metavar="TIME", help="start at the first record that is not older")
    text = "start at the last N records of all partitions, in order of their timestamps"
    start.add_argument("--tail", type=integer(0), metavar="N", help=text)
    text = "stop before the first record that is not older than TIME; starts from the first record by default"
    parser.add_argument("--until", metavar="TIME", help=text)
    parser.add_argument("--partition", type=integer(0), metavar="N", help="read only this partition")
    parser.add_argument("--max-messages", "-n", type=integer(0), metavar="N", help="stop after N records")
    parser.add_argument(
        "--exit",
        action="store_true",
        help="stop at the present end of the topic; starts from the first record by default",
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
    """Run ``ottla consume`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.tail is not None and options.until is not None:
        parser.error("--tail and --until exclude each other")
    if options.format is not None and options.output == "json":
        parser.error("--format and -o json exclude each other")
    return run_with_client(options, lambda client: _consume(client, options))
