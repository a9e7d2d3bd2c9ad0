"""``ottla produce``: lines from standard input become records."""

from __future__ import annotations

import sys
from functools import partial
from zlib import crc32

from ottla.cli.common import (
    add_connection,
    command_parser,
    parse_key_values,
    print_output,
    retry_while_leader_moves,
    run_with_client,
)
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.record_batch import records as r
from ottla.wire.record_batch.compression import CompressionType

TEXT = """Each line of standard input becomes one record. Without a key records go round the partitions.

examples:
  echo hello | ottla produce greetings
  ottla produce events --key-separator : < events.txt         lines like  user-7:clicked
"""
BATCH_RECORDS = 500


def run(arguments: list[str]) -> int:
    """Send every line; gives the exit status."""
    parser = command_parser("produce", TEXT)
    add_connection(parser)
    parser.add_argument("topic", help="made if it is missing and the broker allows it")
    parser.add_argument("--key-separator", metavar="S", help="what stands between key and value")
    parser.add_argument("--header", action="append", default=[], metavar="KEY=VALUE", help="a header of every record")
    parser.add_argument(
        "--codec", choices=[c.name.lower() for c in CompressionType], default="none", help="compression"
    )
    parser.add_argument("--partition", type=int, help="always this partition")
    options = parser.parse_args(arguments)

    async def work(client: ClusterClient) -> None:
        headers = tuple((k, v.encode()) for k, v in parse_key_values(options.header).items())
        numbers = await client.partitions(options.topic, create=True)
        pending: dict[int, list[r.NewRecord]] = {}
        env, sent, turn = BlockingEnv(), 0, 0

        async def flush() -> None:
            for number, items in pending.items():
                send = partial(
                    client.produce, options.topic, number, items, codec=CompressionType[options.codec.upper()]
                )
                await retry_while_leader_moves(client, send)
            pending.clear()

        for line in sys.stdin:
            text = line.rstrip("\n")
            key, value = None, text
            if options.key_separator is not None and options.key_separator in text:
                key, value = text.split(options.key_separator, 1)
            if options.partition is not None:
                number = options.partition
            elif key is not None:
                number = numbers[crc32(key.encode()) % len(numbers)]
            else:
                number = numbers[turn % len(numbers)]
            record = r.NewRecord(None if key is None else key.encode(), value.encode(), env.now_ms(), headers)
            pending.setdefault(number, []).append(record)
            sent += 1
            if sent % BATCH_RECORDS == 0:
                turn += 1
                await flush()
        await flush()
        print_output([{"topic": options.topic, "sent": sent}], options.output)

    return run_with_client(options.bootstrap, work, options.command_config)
