"""``ottla kafka-transactions``: ``list``, ``describe`` and ``describe-producers`` of ``kafka-transactions.sh``.

Source: ``TransactionsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse

from ottla.cli.arguments import integer
from ottla.cli.common import find_coordinator
from ottla.cli.kafka_tools.java_errors import message_text
from ottla.cli.kafka_tools.text_tables import print_table
from ottla.cli.kafka_tools.tool_options import KAFKA_VERSION, ToolFailed, VerbOptions, raise_for, run_tool
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import describe_producers as dp
from ottla.wire.messages import list_transactions as lt
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest

TEXT = "This tool is used to analyze the transactional state of producers in the cluster."
HINT = "Enable debug logging for additional detail."
TRANSACTION = 1
"""Key type of a transactional id in FindCoordinator."""
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
    return out


async def _list(client: ClusterClient, options: argparse.Namespace) -> None:
    request = lt.ListTransactionsRequest(
        duration_filter=options.duration_filter, transactional_id_pattern=options.transactional_id_pattern
    )
    rows: list[tuple[str, int, int, str]] = []
    brokers = sorted(broker.node_id for broker in (await client.metadata([])).brokers)
    for number in brokers:
        answer = await (await client.broker(number)).call(request)
        if answer.error_code:
            error = ProtocolError(ErrorCode(answer.error_code))
            raise ToolFailed(f"Failed to list transactions: {message_text(error)}. {HINT}")
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
        channel = await (client.leader(topic, number) if broker is None else client.broker(broker))
        answer = await channel.call(dp.DescribeProducersRequest([dp.TopicRequest(topic, [number])]))
        row = answer.topics[0].partitions[0]
        raise_for(row.error_code, row.error_message)
    except ProtocolError as error:
        at = "leader" if broker is None else f"broker {broker}"
        text = f"Failed to describe producers for partition {topic}-{number} on {at}: {message_text(error)}. {HINT}"
        raise ToolFailed(text) from None
    rows = []
    for x in sorted(row.active_producers, key=lambda x: x.producer_id):
        start = "None" if x.current_txn_start_offset < 0 else x.current_txn_start_offset
        cells = [x.producer_id, x.producer_epoch, x.coordinator_epoch, x.last_sequence, x.last_timestamp, start]
        rows.append(cells)
    print_table(PRODUCER_HEADS, rows)


def run(arguments: list[str]) -> int:
    """Run ``kafka-transactions`` with these arguments and return the exit status."""
    options = _parser().parse_args(arguments)
    work = {"list": _list, "describe": _describe, "describe-producers": _describe_producers}[options.command]
    return run_tool(options, lambda client: work(client, options))
