"""Production of input lines as records of a topic, in batches that are sent when full or when the input pauses."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from ottla.cli.common import parse_key_values, require_partition
from ottla.cli.errors import CommandFailed
from ottla.cli.records.idempotent_producer import TopicProducer
from ottla.cli.records.input_reader import InputReader
from ottla.client.cluster_client import ClusterClient
from ottla.client.murmur2 import partition_for_key
from ottla.runtime.blocking_env import BlockingEnv
from ottla.tools.json_records import InvalidRecord, ParsedRecord, record_from_json
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.record_batch import records
from ottla.wire.record_batch.compression import CompressionType

BATCH_RECORDS = 500
BATCH_BYTES = 1 << 19
LINGER_MS = 50


class RecordBatches:
    """Buffer of records to produce, by partition, which `flush` sends to the partitions.

    Args:
        producer: sends the batches.
        numbers: partition numbers of the topic.
        options: parsed arguments of ``ottla produce``; ``topic``, ``partition`` and ``header`` are used.
    """

    def __init__(self, producer: TopicProducer, numbers: list[int], options: argparse.Namespace) -> None:
        self._producer = producer
        self._numbers = numbers
        self._options = options
        self._env = BlockingEnv()
        self._headers = tuple((k, v.encode()) for k, v in parse_key_values(options.header).items())
        self._pending: dict[int, list[records.NewRecord]] = {}
        self._count = self._bytes = self._turn = 0
        self._since_ms = 0.0

    @property
    def sent(self) -> int:
        """Number of records that were sent and acknowledged."""
        return self._producer.sent

    def add(self, record: ParsedRecord) -> None:
        """Add a record to the buffer of its partition; nothing is sent.

        The partition is that in the record, ``--partition``, or by the hash of the key. Records without any of these
        go to one partition until the next `flush`, and then to the next partition.

        Raises:
            CommandFailed: the topic has no such partition.
        """
        number = self._options.partition if record.partition is None else record.partition
        if number is not None:
            require_partition(self._options.topic, self._numbers, number)
        elif record.key is not None:
            number = self._numbers[partition_for_key(record.key, len(self._numbers))]
        else:
            number = self._numbers[self._turn % len(self._numbers)]
        time_ms = self._env.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        new = records.NewRecord(record.key, record.value, time_ms, (*self._headers, *record.headers))
        self._pending.setdefault(number, []).append(new)
        if not self._count:
            self._since_ms = self._env.monotonic_ms()
        self._count += 1
        self._bytes += len(record.key or b"") + len(record.value or b"")

    @property
    def is_due(self) -> bool:
        """True if the buffer has reached its limit of records or bytes, or its oldest record is `LINGER_MS` old."""
        if self._count >= BATCH_RECORDS or self._bytes >= BATCH_BYTES:
            return True
        return bool(self._count) and self._env.monotonic_ms() - self._since_ms >= LINGER_MS

    async def flush(self) -> None:
        """Send all buffered records, partition by partition, and wait for their acknowledgements, unless acks is 0.

        Raises:
            CommandFailed, ProtocolError, OSError: as by `TopicProducer.send`; the failed batch and those after it are
                discarded.
        """
        pending, self._pending = self._pending, {}
        self._turn += bool(self._count)
        self._count = self._bytes = 0
        for number, items in pending.items():
            await self._producer.send(number, items)


def _record_from_text(line: bytes, separator: bytes | None, null_marker: bytes | None) -> ParsedRecord:
    key, value = None, line
    if separator is not None and separator in line:
        key, value = line.split(separator, 1)
    return ParsedRecord(None if key == null_marker else key, None if value == null_marker else value)


async def topic_partitions(client: ClusterClient, topic: str) -> list[int]:
    """Return the sorted partition numbers of a topic, which is created if it is missing and the broker permits that.

    Raises:
        CommandFailed: the topic does not exist and is not created.
        ProtocolError: the topic has another error, or partitions without leaders.
    """
    try:
        return await client.partitions(topic, create=True)
    except ProtocolError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise CommandFailed(f"topic {topic} does not exist, and the broker does not create it") from None


async def produce_records(
    client: ClusterClient, options: argparse.Namespace, stream: Any, on_sent: Callable[[int], None] | None = None
) -> int:
    """Send each line of a stream as a record, and return the number of records sent and acknowledged.

    Args:
        client: client of the cluster.
        options: parsed arguments of ``ottla produce``, or the same fields for an import.
        stream: the input; None if it is closed.
        on_sent: called with the number of records sent so far, but not when the input pauses or ends.

    Raises:
        CommandFailed: the topic or ``--partition`` does not exist, the input cannot be read, a line is invalid, with
            the number of the line, or a batch was refused; records before it are sent.
        ProtocolError: the topic has another error, or a retriable error of InitProducerId lasts.
        OSError: a leader cannot be reached.
    """
    numbers = await topic_partitions(client, options.topic)
    if options.partition is not None:
        require_partition(options.topic, numbers, options.partition)
    codec = CompressionType[options.codec.upper()]
    producer = TopicProducer(client, options.topic, codec, idempotent=not options.no_idempotence)
    batches = RecordBatches(producer, numbers, options)
    separator = None if options.key_separator is None else os.fsencode(options.key_separator)
    null_marker = None if options.null_marker is None else os.fsencode(options.null_marker)
    reader = InputReader(stream)
    count = 0
    try:
        while (lines := reader.read_values()) is not None:
            for line in lines:
                count += 1
                try:
                    is_text = options.input == "text"
                    batches.add(_record_from_text(line, separator, null_marker) if is_text else record_from_json(line))
                except (InvalidRecord, CommandFailed) as error:
                    await batches.flush()
                    raise CommandFailed(f"line {count}: {error}") from None
                if batches.is_due:
                    await batches.flush()
                    if on_sent is not None:
                        on_sent(batches.sent)
            if not reader.has_input():
                await batches.flush()
        await batches.flush()
    except CommandFailed as error:
        if not batches.sent:
            raise
        raise CommandFailed(f"{error} (records sent before: {batches.sent})") from None
    return batches.sent
