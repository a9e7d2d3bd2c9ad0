"""``ottla consume``: print a topic's records."""

from __future__ import annotations

import argparse
import json
from functools import partial

from ottla.cli.common import add_connection, command_parser, retry_while_leader_moves, run_with_client
from ottla.client.cluster_client import ClusterClient, FetchedRecord

TEXT = """Prints records as they come, from the end of the topic unless told otherwise; it joins no group.

examples:
  ottla consume events                             follow from now on
  ottla consume events --from-beginning --exit     print what is there
  ottla consume events --offset 100 -o json
  ottla consume events --isolation read_committed  only what transactions have committed
"""


def _print_record(item: FetchedRecord, options: argparse.Namespace) -> None:
    record = item.record

    def text(raw: bytes | None) -> str | None:
        return None if raw is None else raw.decode("utf-8", "replace")

    if options.output == "json":
        row = {
            "topic": item.topic,
            "partition": item.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": text(record.key),
            "value": text(record.value),
            "headers": {k: text(v) for k, v in record.headers},
        }
        print(json.dumps(row), flush=True)
        return
    key = text(record.key)
    print((f"{key}{options.key_separator}" if key is not None else "") + (text(record.value) or ""), flush=True)


def run(arguments: list[str]) -> int:
    """Print records; gives the exit status."""
    parser = command_parser("consume", TEXT)
    add_connection(parser)
    parser.add_argument("topic", help="the topic's name")
    parser.add_argument("--from-beginning", action="store_true", help="from the first record that is kept")
    parser.add_argument("--offset", type=int, help="from this offset of every partition")
    parser.add_argument("--partition", type=int, help="only this partition")
    parser.add_argument("--max-messages", "-n", type=int, help="stop after so many")
    parser.add_argument("--exit", action="store_true", help="stop at the end")
    parser.add_argument(
        "--isolation",
        choices=["read_uncommitted", "read_committed"],
        default="read_uncommitted",
        help="whether to print records of transactions that are open or were aborted (default: read_uncommitted)",
    )
    parser.add_argument("--key-separator", default="\t", help="printed between key and value (default: a tab)")
    options = parser.parse_args(arguments)

    async def work(client: ClusterClient) -> None:
        numbers = await client.partitions(options.topic)
        if options.partition is not None:
            numbers = [options.partition]
        where = -2 if options.from_beginning or options.exit else -1
        committed = options.isolation == "read_committed"

        async def offset(number: int, timestamp: int) -> int:
            return await retry_while_leader_moves(
                client, partial(client.list_offset, options.topic, number, timestamp, committed=committed)
            )

        at = {n: options.offset if options.offset is not None else await offset(n, where) for n in numbers}
        ends = {n: await offset(n, -1) for n in numbers} if options.exit else {}
        seen = 0
        while not options.exit or any(at[n] < ends[n] for n in numbers):
            for number in numbers:
                if options.exit and at[number] >= ends[number]:
                    continue
                wait_ms = 500 // len(numbers) + 1
                ask = partial(client.read_records, options.topic, number, at[number], wait_ms, committed=committed)
                found = await retry_while_leader_moves(client, ask)
                for record in found.records:
                    _print_record(FetchedRecord(options.topic, number, record), options)
                    seen += 1
                    if options.max_messages is not None and seen >= options.max_messages:
                        return
                if found.next_offset == at[number] and options.exit:
                    ends[number] = at[number]
                at[number] = found.next_offset

    return run_with_client(options.bootstrap, work, options.command_config)
