"""``ottla produce``: send the lines of standard input as records of a topic."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.arguments import command_parser, integer
from ottla.cli.common import (
    add_connection,
    print_output,
    run_with_client,
)
from ottla.cli.records.record_input import produce_records
from ottla.client.cluster_client import ClusterClient
from ottla.wire.record_batch.compression import CompressionType

TEXT = """Send each line of standard input as one record, byte for byte. Lines are sent when the input pauses, at the
latest after 50 ms. A record with a key goes to the partition that Kafka's own clients choose (murmur2); batches
of records without a key go to the partitions in turn. The producer is idempotent: a retried batch is appended once.

With -i json each line is an object with any of key, value, headers, partition, timestamp_ms, as `ottla consume -o json`
prints it. A value that is not text is sent as JSON; key_base64, value_base64 and headers_base64 hold other bytes.

examples:
  echo hello | ottla produce greetings
  ottla produce events --key-separator : < events.txt         lines like  user-7:clicked
  echo '{"key": "user-7", "value": null}' | ottla produce events -i json
  ottla consume events --exit -o json | ottla produce copy -i json
"""


async def _produce(client: ClusterClient, options: argparse.Namespace) -> None:
    stream = None if sys.stdin is None else getattr(sys.stdin, "buffer", sys.stdin)
    sent = await produce_records(client, options, stream)
    print_output([{"topic": options.topic, "sent": sent}], options.output)


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("at least one character expected")
    return text


def run(arguments: list[str]) -> int:
    """Run ``ottla produce`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("produce", TEXT)
    add_connection(parser, "format of the summary that is printed at the end (default: text)")
    parser.add_argument("topic", help="name of the topic; created if it is missing and the broker allows it")
    parser.add_argument("-i", "--input", choices=["text", "json"], default="text", help="format of a line")
    parser.add_argument(
        "--key-separator", type=_separator, metavar="S", help="text: separator between key and value (default: no key)"
    )
    parser.add_argument("--null-marker", metavar="S", help="text: a key or value that equals S is null")
    parser.add_argument("--header", action="append", default=[], metavar="KEY=VALUE", help="header of every record")
    parser.add_argument(
        "--codec",
        choices=[c.name.lower() for c in CompressionType],
        default="none",
        help="compression (default: none)",
    )
    parser.add_argument("--partition", type=integer(0), metavar="N", help="partition of all records")
    parser.add_argument(
        "--no-idempotence",
        action="store_true",
        help="use no producer id; a batch that is sent again may be appended twice",
    )
    options = parser.parse_args(arguments)
    return run_with_client(options, lambda client: _produce(client, options))
