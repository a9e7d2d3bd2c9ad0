"""``ottla txn``: list and describe transactions of a Kafka cluster, find hanging ones, and abort them."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from ottla.cli.arguments import MAX_INT32, MAX_INT64, command_parser, integer
from ottla.cli.cluster_admin.open_transactions import describe_producers, write_abort_marker
from ottla.cli.common import (
    add_connection,
    connect_to_coordinator,
    print_output,
    require_partition,
    require_topic,
    run_with_client,
)
from ottla.cli.errors import CommandFailed, raise_for_error, raise_for_topic
from ottla.client.cluster_client import ClusterClient
from ottla.runtime import blocking_env
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_transactions, list_transactions

TEXT = """A transaction makes records of several partitions, and offsets of groups, visible together or not at all.
While it is open, read_committed consumers wait at its first record (the last stable offset). A transaction that is
unknown to its coordinator is hanging: it never ends, and the consumers wait until it is aborted.

examples:
  ottla txn list                          transactional ids, their coordinator and state
  ottla txn describe payments             state of one id, and the partitions of its transaction
  ottla txn hanging --older-than 900      open transactions unknown to their coordinator
  ottla txn abort events 3 1042           abort a hanging one: topic, partition, its first offset
"""
TRANSACTION = 1
"""Key type of a transactional id in FindCoordinator."""


class OpenTransaction(NamedTuple):
    """Open transaction of a producer in one partition; ``producer`` is its row in the DescribeProducers response."""

    topic: str
    partition: int
    producer: Any


def _parser() -> argparse.ArgumentParser:
    out = command_parser("txn", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list transactional ids and their state"),
        ("describe", "describe the state of a transactional id"),
        ("hanging", "find open transactions unknown to their coordinator"),
        ("abort", "abort a transaction in one partition"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        add_connection(verb)
        if name == "describe":
            verb.add_argument("id", help="the transactional id")
        if name == "hanging":
            text = "minimum age of the last record (default 900, the default of transaction.max.timeout.ms)"
            verb.add_argument("--older-than", metavar="SECONDS", type=integer(0, MAX_INT32), default=900, help=text)
            verb.add_argument("--topic", help="only in this topic")
        if name == "abort":
            verb.add_argument("topic", help="name of the topic")
            verb.add_argument("partition", type=integer(0), help="number of the partition")
            verb.add_argument("offset", type=integer(0, MAX_INT64), help="first offset of the transaction")
            verb.add_argument("--force", action="store_true", help="abort it even if it is not hanging")
    return out


async def _list_transactions(client: ClusterClient) -> list[dict[str, Any]]:
    rows = []
    for channel in await client.all_brokers():
        answer = await channel.call(list_transactions.ListTransactionsRequest())
        raise_for_error(answer.error_code, None, "transactions")
        rows += [
            {"id": x.transactional_id, "producer": x.producer_id, "state": x.transaction_state}
            for x in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["id"]))


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    print_output(await _list_transactions(client), options.output, "no transactional ids")


async def _describe_transaction(client: ClusterClient, name: str) -> describe_transactions.TransactionState:
    channel = await connect_to_coordinator(client, name, TRANSACTION)
    answer = await channel.call(describe_transactions.DescribeTransactionsRequest([name]))
    row: describe_transactions.TransactionState = answer.transaction_states[0]
    if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise CommandFailed(f"transactional id {name} does not exist")
    raise_for_error(row.error_code, None, f"transactional id {name}")
    return row


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    row = await _describe_transaction(client, options.id)
    partitions = [f"{topic.topic}-{number}" for topic in row.topics for number in sorted(topic.partitions)]
    since_s = (blocking_env.BlockingEnv().now_ms() - row.transaction_start_time_ms) // 1000
    description = {
        "id": options.id,
        "producer": row.producer_id,
        "epoch": row.producer_epoch,
        "state": row.transaction_state,
        "timeout_s": row.transaction_timeout_ms / 1000,
        "open_s": since_s if row.transaction_state == "Ongoing" else "",
        "partitions": partitions if options.output != "text" else " ".join(sorted(partitions)),
    }
    print_output([description], options.output)


async def _open_transactions(client: ClusterClient, topic: str, numbers: list[int]) -> list[OpenTransaction]:
    """Return the open transactions in partitions ``numbers`` of a topic, as the leaders of the partitions report them.

    Raises:
        CommandFailed: a leader refused DescribeProducers.
    """
    out = []
    for number in numbers:
        row = await describe_producers(client, topic, number)
        raise_for_error(row.error_code, row.error_message, f"{topic}-{number}")
        out += [OpenTransaction(topic, number, x) for x in row.active_producers if x.current_txn_start_offset >= 0]
    return out


async def _find_hanging(client: ClusterClient, options: argparse.Namespace) -> None:
    """Print the hanging transactions: open in a partition, while no transaction coordinator has the partition in one.

    Only transactions with a last record that is at least ``--older-than`` seconds old are examined.

    Raises:
        CommandFailed: a topic does not exist, or a broker refused a request.
    """
    topics = (await client.metadata(None if options.topic is None else [options.topic])).topics
    before_ms = blocking_env.BlockingEnv().now_ms() - options.older_than * 1000
    found: list[OpenTransaction] = []
    for topic in topics:
        raise_for_topic(topic.error_code, None, topic.name or "")
        numbers = sorted(p.partition_index for p in topic.partitions)
        found += [
            x
            for x in await _open_transactions(client, topic.name or "", numbers)
            if x.producer.last_timestamp <= before_ms
        ]
    ids = {row["producer"]: row["id"] for row in await _list_transactions(client)} if found else {}
    rows = []
    for one in found:
        name = ids.get(one.producer.producer_id)
        if name is None or not await _is_part_of(client, name, one.topic, one.partition):
            rows.append(
                {
                    "topic": one.topic,
                    "partition": one.partition,
                    "offset": one.producer.current_txn_start_offset,
                    "producer": one.producer.producer_id,
                    "epoch": one.producer.producer_epoch,
                    "id": name or "",
                }
            )
    print_output(rows, options.output, "no hanging transactions")


async def _is_part_of(client: ClusterClient, name: str, topic: str, partition: int) -> bool:
    """Return True if the coordinator has the partition in the current transaction of transactional id ``name``.

    Raises:
        CommandFailed: the transactional id does not exist, or may not be described.
    """
    described = (await _describe_transaction(client, name)).topics
    return any(x.topic == topic and partition in x.partitions for x in described)


async def _abort(client: ClusterClient, options: argparse.Namespace) -> None:
    """Send WriteTxnMarkers with an abort marker for a hanging transaction to the partition's leader.

    Raises:
        CommandFailed: the partition does not exist, no transaction begins at the offset, a coordinator still has it and
            ``--force`` is not set, or the leader refused the marker.
    """
    topic = await require_topic(client, options.topic)
    require_partition(options.topic, (p.partition_index for p in topic.partitions), options.partition)
    found = await _open_transactions(client, options.topic, [options.partition])
    hit = next((x.producer for x in found if x.producer.current_txn_start_offset == options.offset), None)
    if hit is None:
        raise CommandFailed(f"no transaction begins at offset {options.offset} of {options.topic}-{options.partition}")
    if not options.force:
        ids = {row["producer"]: row["id"] for row in await _list_transactions(client)}
        name = ids.get(hit.producer_id)
        if name is not None and await _is_part_of(client, name, options.topic, options.partition):
            raise CommandFailed(
                f"transaction of {name} at offset {options.offset} of {options.topic}-{options.partition} is not "
                "hanging: its coordinator will end it when its producer does or when it times out (--force aborts it)"
            )
    code = await write_abort_marker(
        client, options.topic, options.partition, hit.producer_id, hit.producer_epoch, hit.coordinator_epoch
    )
    raise_for_error(code, None, f"{options.topic}-{options.partition}")
    print(f"{options.topic}-{options.partition}: the transaction that begins at {options.offset} is aborted")


def run(arguments: list[str]) -> int:
    """Run ``ottla txn`` with the arguments after its name and return the exit status.

    Returns:
        0; 1 after a failure that is printed; 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    verb = {"list": _list, "describe": _describe, "hanging": _find_hanging, "abort": _abort}[options.verb]

    async def work(client: ClusterClient) -> None:
        await verb(client, options)

    return run_with_client(options, work)
