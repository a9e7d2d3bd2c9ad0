"""Verbs ``abort``, ``find-hanging`` and ``forceTerminateTransaction`` of the tool ``kafka-transactions``.

Source: ``TransactionsCommand`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from ottla.cli.cluster_admin.open_transactions import describe_producers, write_abort_marker
from ottla.cli.common import find_coordinator
from ottla.cli.kafka_tools.java_errors import message_text
from ottla.cli.kafka_tools.text_tables import print_table
from ottla.cli.kafka_tools.tool_options import ToolFailed, raise_for
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import list_transactions
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest

HINT = "Enable debug logging for additional detail."
TRANSACTION = 1
"""Key type of a transactional id in FindCoordinator."""
FENCE_TIMEOUT_MS = 60_000
RETRIES = 100
HANGING_HEADS = (
    *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset", "LastTimestamp"),
    "Duration(min)",
)
UNIDENTIFIED = (
    "The transaction to abort must be identified either with --start-offset (for brokers on 3.0 or above) or with "
    "--producer-id, --producer-epoch, and --coordinator-epoch (for older brokers)"
)
NO_SCOPE = "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"


class _OpenTransaction(NamedTuple):
    """Open transaction in a partition; ``producer`` is its row in the DescribeProducers response."""

    topic: str
    partition: int
    producer: Any


def failed(operation: str, error: Exception) -> ToolFailed:
    """Return the exception for a failed operation, with the message that Kafka's tool prints for ``error``."""
    return ToolFailed(f"{operation}: {message_text(error)}. {HINT}")


async def producers_of(client: ClusterClient, topic: str, partition: int, broker: int | None = None) -> Any:
    """Return the row of a partition in a DescribeProducers response of ``broker``, or of the leader if it is None.

    Raises:
        ProtocolError: the request failed. The message is that of Kafka's client.
    """
    try:
        row = await describe_producers(client, topic, partition, broker)
    except ProtocolError as error:
        raise ProtocolError(error.code) from None
    raise_for(row.error_code, row.error_message)
    return row


async def abort(client: ClusterClient, options: argparse.Namespace) -> None:
    """Write an abort marker for the transaction that the options identify, by start offset or by producer.

    Raises:
        ToolFailed: options are missing, no open transaction starts at the offset, or the marker was refused.
    """
    topic, partition = options.topic, options.partition
    if options.start_offset is None and options.producer_id is None:
        raise ToolFailed(UNIDENTIFIED)
    found = (options.producer_id, options.producer_epoch, options.coordinator_epoch)
    if options.start_offset is None:
        for name, value in zip(("producer-epoch", "coordinator-epoch"), found[1:], strict=True):
            if value is None:
                raise ToolFailed(f"Missing required argument --{name}")
    else:
        found = await _producer_at(client, topic, partition, options.start_offset)
    number, epoch, coordinator_epoch = found
    text = (
        f"AbortTransactionSpec(topicPartition={topic}-{partition}, producerId={number}, producerEpoch={epoch}, "
        f"coordinatorEpoch={max(coordinator_epoch, 0)})"
    )
    try:
        raise_for(await write_abort_marker(client, topic, partition, number, epoch, coordinator_epoch), None)
    except ProtocolError as error:
        raise failed(f"Failed to abort transaction {text}", error) from None


async def _producer_at(client: ClusterClient, topic: str, partition: int, offset: int) -> tuple[int, int, int]:
    """Return producer id, producer epoch and coordinator epoch of the open transaction that starts at an offset.

    Raises:
        ToolFailed: there is none, or the leader of the partition refused the request.
    """
    try:
        row = await producers_of(client, topic, partition)
    except ProtocolError as error:
        raise failed(f"Failed to validate producer state for partition {topic}-{partition}", error) from None
    for x in row.active_producers:
        if x.current_txn_start_offset == offset >= 0:
            return x.producer_id, x.producer_epoch, x.coordinator_epoch
    raise ToolFailed(
        f"Could not find any open transactions starting at offset {offset} on partition {topic}-{partition}"
    )


async def force_terminate(client: ClusterClient, options: argparse.Namespace) -> None:
    """Abort the transaction of a transactional id with InitProducerId, which fences its producer.

    The request is repeated every 100 ms while the coordinator is loading, moving or ending a transaction, 100 times at
    most.

    Raises:
        ToolFailed: the coordinator refused the request, also if it was still busy after the last repetition.
        CommandFailed: no coordinator is available.
    """
    name, env = options.transactionalId, BlockingEnv()
    for _ in range(RETRIES):
        _, channel = await find_coordinator(client, name, TRANSACTION)
        answer = await channel.call(InitProducerIdRequest(name, FENCE_TIMEOUT_MS))
        if answer.error_code not in (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
        ):
            break
        await env.sleep(0.1)
    if answer.error_code:
        kind = {
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster authorization failure",
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional ID authorization failure",
        }.get(ErrorCode(answer.error_code), "unexpected error")
        text = f"InitProducerId request for transactionalId `{name}` failed due to {kind}"
        raise failed(f"Failed to force terminate transactionalId `{name}`", ToolFailed(text))


async def find_hanging(client: ClusterClient, options: argparse.Namespace) -> None:
    """Print the open transactions that no transaction coordinator knows of.

    Only transactions with a last record older than ``--max-transaction-timeout`` minutes are examined.

    Raises:
        ToolFailed: neither a topic nor a broker is named, a partition is named without its topic, or a request was
            refused.
        CommandFailed: no coordinator is available.
    """
    if options.topic is None and options.broker_id is None:
        raise ToolFailed(NO_SCOPE)
    if options.partition is not None and options.topic is None:
        raise ToolFailed("The --partition argument requires --topic to be provided")
    partitions = await _partitions(client, options)
    now_ms = BlockingEnv().now_ms()
    found: list[_OpenTransaction] = []
    for topic, number in partitions:
        try:
            row = await producers_of(client, topic, number, options.broker_id)
        except ProtocolError as error:
            broker = "Optional.empty" if options.broker_id is None else f"Optional[{options.broker_id}]"
            operation = f"Failed to describe producers for {len(partitions)} partitions on broker {broker}"
            raise failed(operation, error) from None
        found += [
            _OpenTransaction(topic, number, x)
            for x in row.active_producers
            if x.current_txn_start_offset >= 0 and now_ms - x.last_timestamp > options.max_transaction_timeout * 60_000
        ]
    known = await _coordinated(client, {x.producer.producer_id for x in found}) if found else {}
    rows = []
    for topic, number, x in found:
        if (topic, number) not in known.get(x.producer_id, ()):
            minutes = (now_ms - x.last_timestamp) // 60_000
            cells = [topic, number, x.producer_id, x.producer_epoch, x.coordinator_epoch, x.current_txn_start_offset]
            rows.append([*cells, x.last_timestamp, minutes])
    print_table(HANGING_HEADS, rows)


async def _partitions(client: ClusterClient, options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return topic and number of each partition that the options select.

    These are ``--partition`` of ``--topic``, which is not checked, or all partitions of the topic or cluster, with
    ``--broker-id`` only those with a replica there.

    Raises:
        ToolFailed: without ``--partition``: a topic does not exist or may not be described.
    """
    answer = await client.metadata(None if options.topic is None else [options.topic])
    if options.partition is not None:
        return [(options.topic, options.partition)]
    out = []
    for topic in sorted(answer.topics, key=lambda topic: topic.name or ""):
        if topic.error_code:
            error = ProtocolError(ErrorCode(topic.error_code))
            raise failed(f"Failed to describe {len(answer.topics)} topics", error)
        rows = [x for x in topic.partitions if options.broker_id is None or options.broker_id in x.replica_nodes]
        out += [(topic.name or "", number) for number in sorted(x.partition_index for x in rows)]
    return out


async def _coordinated(client: ClusterClient, producers: set[int]) -> dict[int, set[tuple[str, int]]]:
    """Return the partitions in the ongoing transaction of each producer id, as transaction coordinators report them.

    A producer id that no coordinator lists has no entry; one whose transactional id is gone when it is described has an
    empty set.

    Raises:
        ToolFailed: a coordinator refused ListTransactions or DescribeTransactions.
        CommandFailed: no coordinator is available.
    """
    ids = {}
    for channel in await client.all_brokers():
        answer = await channel.call(list_transactions.ListTransactionsRequest([], sorted(producers)))
        if answer.error_code:
            error = ProtocolError(ErrorCode(answer.error_code))
            raise failed(f"Failed to list transactions for {len(producers)} producers", error)
        ids.update({x.producer_id: x.transactional_id for x in answer.transaction_states})
    out = {}
    for number, name in ids.items():
        _, channel = await find_coordinator(client, name, TRANSACTION)
        row = (await channel.call(DescribeTransactionsRequest([name]))).transaction_states[0]
        if row.error_code not in (0, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
            raise failed(f"Failed to describe {len(ids)} transactions", ProtocolError(ErrorCode(row.error_code)))
        out[number] = {(topic.topic, index) for topic in row.topics for index in topic.partitions}
    return out
