"""``ottla kafka-console-producer``: the tool ``kafka-console-producer.sh``.

Source: ``ConsoleProducer`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from ottla.cli.connection_settings import read_client_config
from ottla.cli.errors import CommandFailed
from ottla.cli.kafka_tools.line_message_reader import LineMessageReader
from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    ToolFailed,
    ToolOptions,
    has,
    java_long,
    key_values,
    run_tool,
)
from ottla.cli.records.idempotent_producer import TopicProducer
from ottla.cli.records.input_reader import InputReader
from ottla.cli.records.record_input import RecordBatches, topic_partitions
from ottla.client.cluster_client import ClusterClient
from ottla.wire.record_batch.compression import CompressionType

TEXT = "This tool helps to read data from standard input and publish it to Kafka."
READER = "org.apache.kafka.tools.LineMessageReader"
IGNORED = "Accepted for compatibility; has no effect."
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
RENAMED = (
    ("producer-property", "command-property", "--producer-property", "a future version"),
    ("producer.config", "command-config", "--producer.config", "a future version"),
    ("property", "reader-property", "--property", "a future version"),
    ("max-partition-memory-bytes", "batch-size", "--max-partition-memory-bytes", "Apache Kafka 5.0"),
)


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-console-producer", TEXT)
    out.connection()
    out.option("topic", "REQUIRED: The topic name to produce messages to.")
    out.flag("sync", "Send each record by itself and wait for its acknowledgement.")
    out.optional_value("compression-codec", "none, gzip, snappy, lz4 or zstd; gzip without a value.")
    out.option("request-required-acks", "The required acks of the producer requests (default: -1).")
    out.option("line-reader", f"Only {READER}, which is the default.")
    out.option("reader-property", "parse.key, key.separator, parse.headers, ...: key=value.", is_repeated=True)
    out.option("property", "Deprecated: --reader-property.", is_repeated=True)
    out.option("reader-config", "Config properties file for the message reader.")
    out.option("command-property", "Producer config property: key=value.", is_repeated=True)
    out.option("producer-property", "Deprecated: --command-property.", is_repeated=True)
    out.option("producer.config", "Deprecated: --command-config.")
    for name in (
        *("batch-size", "message-send-max-retries", "retry-backoff-ms", "timeout", "request-timeout-ms"),
        *("metadata-expiry-ms", "max-block-ms", "max-memory-bytes", "max-partition-memory-bytes"),
        "socket-buffer-size",
    ):
        out.option(name, IGNORED, java_long)
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options, and move the values of deprecated options to the new ones.

    For an invalid combination an error message and the usage are printed, and the tool exits with status 1.
    """
    parser.require(options, "topic")
    for old, new, shown, _ in RENAMED[:3]:
        if has(options, old) and has(options, new):
            parser.fail_with_usage(f"Options --{new} and {shown} cannot be specified together.")
    for old, new, shown, version in RENAMED:
        if has(options, old):
            print(
                f"Warning: {shown} is deprecated and will be removed in {version}. Use --{new} instead.",
            )
            setattr(options, new.replace("-", "_"), getattr(options, old.replace("-", "_")))
    parser.check_bootstrap(options)


def _codec(name: str | None) -> CompressionType:
    try:
        return CompressionType[(name or "gzip").upper()] if name is not None else CompressionType.NONE
    except KeyError:
        text = "String must be one of: none, gzip, snappy, lz4, zstd"
        raise ToolFailed(
            f"org.apache.kafka.common.config.ConfigException: Invalid value {name} for configuration compression.type: "
            f"{text}"
        ) from None


async def _produce(
    client: ClusterClient, options: argparse.Namespace, settings: Mapping[str, str], stream: Any
) -> None:
    """Send each line of ``stream`` as a record of the topic, and wait until all are acknowledged, unless acks is 0.

    ``settings``: producer properties. Records are sent also if a later line is invalid.

    Raises:
        ToolFailed: a line or setting is invalid.
        CommandFailed: the topic does not exist, a batch was refused, or the file of ``--reader-config`` or the input
            cannot be read.
        ProtocolError: the topic has another error, or a retriable error of InitProducerId lasts.
        OSError: a leader cannot be reached.
    """
    if options.line_reader not in (None, READER):
        raise ToolFailed(f"java.lang.ClassNotFoundException: {options.line_reader}")
    properties = read_client_config(options.reader_config) | key_values(options.reader_property)
    reader = LineMessageReader(properties)
    codec = _codec(options.compression_codec)
    acks = options.request_required_acks or settings.get("acks", "-1")
    if acks not in ACKS:
        raise ToolFailed(
            f"org.apache.kafka.common.config.ConfigException: Invalid value {acks} for configuration acks: "
            "String must be one of: all, -1, 0, 1"
        )
    is_idempotent = settings.get("enable.idempotence", "true").lower() == "true"
    numbers = await topic_partitions(client, options.topic)
    producer = TopicProducer(client, options.topic, codec, ACKS[acks], idempotent=is_idempotent)
    batches = RecordBatches(producer, numbers, argparse.Namespace(topic=options.topic, partition=None, header=()))
    lines = InputReader(stream)
    try:
        while (read := lines.read_values()) is not None:
            for line in read:
                batches.add(reader.parse(line))
                if options.sync or batches.is_due:
                    await batches.flush()
            if not lines.has_input():
                await batches.flush()
    finally:
        await batches.flush()


def run(arguments: list[str]) -> int:
    """Run ``kafka-console-producer``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    try:
        settings = read_client_config(options.command_config) | key_values(options.command_property)
    except CommandFailed as error:
        parser.error(str(error))
    options.client_settings = key_values(options.command_property)
    options.client_id = settings.get("client.id", "console-producer")
    stream = None if sys.stdin is None else getattr(sys.stdin, "buffer", sys.stdin)
    return run_tool(
        options, lambda client: _produce(client, options, settings, stream), FailureFormat("", to_stderr=True)
    )
