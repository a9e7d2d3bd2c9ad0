"""``ottla kafka-transactions``: the tool ``kafka-transactions.sh``, which lists, describes and aborts transactions.

Source: ``TransactionsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from typing import Any

from ottla.cli.arguments import integer
from ottla.cli.common import find_coordinator
from ottla.cli.kafka_tools.hanging_transactions import (
    HINT,
    TRANSACTION,
    abort,
    failed,
    find_hanging,
    force_terminate,
    producers_of,
)
from ottla.cli.kafka_tools.java_errors import message_text
from ottla.cli.kafka_tools.text_tables import print_table
from ottla.cli.kafka_tools.tool_options import (
    KAFKA_VERSION,
    ToolFailed,
    VerbOptions,
    java_integer,
    java_long,
    java_short,
    run_tool,
)
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import list_transactions
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

TEXT = "This tool is used to analyze the transactional state of producers in the cluster."
LIST_HEADS = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
PRODUCER_HEADS = (
    *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence", "LastTimestamp"),
    "CurrentTransactionStartOffset",
)
DESCRIBE_HEADS = (
    *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState", "TransactionTimeoutMs"),
    *("CurrentTransactionStartTimeMs", "TransactionDurationMs", "TopicPartitions"),
)


def _parser() -> VerbOptions:
    out = VerbOptions("ottla kafka-transactions", description=TEXT)
    out.set_defaults(context=None, needs_utf8=True)
    out.add_argument("--version", "-v", action="version", version=KAFKA_VERSION, help="Display Kafka version.")
    out.add_argument("--command-config", metavar="FILE", help="Property file for the admin client.")
    out.add_argument("--bootstrap-server", metavar="host:port", required=True, help="The brokers to connect to.")
    verbs = out.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = verbs.add_parser("list", help="List transactions.")
    text = "Only transactions that run longer, in milliseconds; negative: all."
    listing.add_argument("--duration-filter", type=integer(-(2**63), 2**63 - 1), default=-1, help=text)
    listing.add_argument("--transactional-id-pattern", help="Regular expression of transactional ids.")
    describe = verbs.add_parser("describe", help="Describe the state of an active transactional id.")
    describe.add_argument("--transactional-id", required=True, help="Transactional id.")
    producers = verbs.add_parser("describe-producers", help="Describe the producers of a topic partition.")
    producers.add_argument("--broker-id", type=integer(0), help="Broker of the replica to ask; the leader by default.")
    producers.add_argument("--topic", required=True, help="Topic name.")
    producers.add_argument("--partition", type=integer(0), required=True, help="Partition number.")
    _add_hanging(verbs)
    return out


def _add_hanging(verbs: Any) -> None:
    """Add the verbs ``abort``, ``find-hanging`` and ``forceTerminateTransaction`` to the argument parser."""
    ending = verbs.add_parser("abort", help="Abort a hanging transaction.")
    ending.add_argument("--topic", required=True, help="Topic name.")
    ending.add_argument("--partition", type=java_integer, required=True, help="Partition number.")
    ending.add_argument("--start-offset", type=java_long, help="Start offset of the transaction to abort.")
    ending.add_argument("--producer-id", type=java_long, help="Producer id, for brokers older than 3.0.")
    ending.add_argument("--producer-epoch", type=java_short, help="Producer epoch; with --producer-id.")
    ending.add_argument("--coordinator-epoch", type=java_integer, help="Coordinator epoch; with --producer-id.")
    finding = verbs.add_parser("find-hanging", help="Find hanging transactions.")
    finding.add_argument("--broker-id", type=java_integer, help="Broker to search.")
    text = "Minutes without record after which an open transaction may hang (15)."
    finding.add_argument("--max-transaction-timeout", type=java_integer, default=15, help=text)
    finding.add_argument("--topic", help="Topic to search; required with --partition.")
    finding.add_argument("--partition", type=java_integer, help="Partition number.")
    forced = verbs.add_parser("forceTerminateTransaction", help="Abort the ongoing transaction of a transactional id.")
    forced.add_argument("--transactionalId", required=True, help="Transactional id.")


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    request = list_transactions.ListTransactionsRequest(
        duration_filter=options.duration_filter, transactional_id_pattern=options.transactional_id_pattern
    )
    rows: list[tuple[str, int, int, str]] = []
    brokers = sorted(broker.node_id for broker in (await client.metadata([])).brokers)
    for number in brokers:
        answer = await (await client.broker(number)).call(request)
        if answer.error_code:
            raise failed("Failed to list transactions", ProtocolError(ErrorCode(answer.error_code)))
        rows += [(x.transactional_id, number, x.producer_id, x.transaction_state) for x in answer.transaction_states]
    print_table(LIST_HEADS, sorted(rows))


async def _describe(client: ClusterClient, options: argparse.Namespace) -> None:
    name = options.transactional_id
    number, channel = await find_coordinator(client, name, TRANSACTION)
    row = (await channel.call(DescribeTransactionsRequest([name]))).transaction_states[0]
    if row.error_code:
        text = message_text(ProtocolError(ErrorCode(row.error_code)))
        if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            text = f"DescribeTransactions request for transactionalId `{name}` failed because the ID could not be found"
        raise ToolFailed(f"Failed to describe transaction state of transactional-id `{name}`: {text}. {HINT}")
    times: tuple[int | str, int | str] = ("None", "None")
    if row.transaction_start_time_ms >= 0:
        times = row.transaction_start_time_ms, BlockingEnv().now_ms() - row.transaction_start_time_ms
    partitions = [f"{topic.topic}-{index}" for topic in row.topics for index in sorted(topic.partitions)]
    cells = [number, name, row.producer_id, row.producer_epoch, row.transaction_state, row.transaction_timeout_ms]
    print_table(DESCRIBE_HEADS, [[*cells, *times, ",".join(sorted(partitions))]])


async def _describe_producers(client: ClusterClient, options: argparse.Namespace) -> None:
    topic, number, broker = options.topic, options.partition, options.broker_id
    try:
        await client.metadata([topic])
        row = await producers_of(client, topic, number, broker)
    except ProtocolError as error:
        at = "leader" if broker is None else f"broker {broker}"
        raise failed(f"Failed to describe producers for partition {topic}-{number} on {at}", error) from None
    rows = []
    for x in sorted(row.active_producers, key=lambda x: x.producer_id):
        start = "None" if x.current_txn_start_offset < 0 else x.current_txn_start_offset
        cells = [x.producer_id, x.producer_epoch, x.coordinator_epoch, x.last_sequence, x.last_timestamp, start]
        rows.append(cells)
    print_table(PRODUCER_HEADS, rows)


def run(arguments: list[str]) -> int:
    """Run ``kafka-transactions``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` or ``--version`` (status 0), or invalid arguments (status 1).
    """
    options = _parser().parse_args(arguments)
    work = {
        "list": _list,
        "describe": _describe,
        "describe-producers": _describe_producers,
        "abort": abort,
        "find-hanging": find_hanging,
        "forceTerminateTransaction": force_terminate,
    }[options.command]
    return run_tool(options, lambda client: work(client, options))
