"""``ottla kafka-producer-perf-test``: the tool ``kafka-producer-perf-test.sh``.

Source: ``ProducerPerformance`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping

from ottla.cli.connection_settings import read_client_config
from ottla.cli.errors import CommandFailed
from ottla.cli.kafka_tools.performance import ProducerStatistics, check_record_size, pause_s, split_payloads
from ottla.cli.kafka_tools.tool_options import (
    STDERR,
    FailureFormat,
    ToolFailed,
    VerbOptions,
    java_integer,
    java_long,
    run_tool,
)
from ottla.cli.records.idempotent_producer import TopicProducer
from ottla.cli.records.record_input import RecordBatches, topic_partitions
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.tools.json_records import ParsedRecord
from ottla.wire.record_batch.compression import CompressionType

TEXT = "This tool is used to verify the producer performance."
ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
NO_SERVERS = (
    "At least one of --bootstrap-server, --command-property, --producer-props, --producer.config or --command-config "
    "must be specified."
)
RENAMED = (
    ("producer_props", "command_property", "--producer-props", "--command-property"),
    ("producer.config", "command_config", "--producer.config", "--command-config"),
)
_FIRST, _LETTERS = 65, 26


def _parser() -> VerbOptions:
    out = VerbOptions("ottla kafka-producer-perf-test", description=TEXT)
    out.set_defaults(context=None, needs_utf8=True)
    out.add_argument("--bootstrap-server", help="The server(s) to connect to.")
    out.add_argument("--topic", required=True, help="Produce records to this topic.")
    out.add_argument("--num-records", type=java_long, required=True, help="Number of records to produce.")
    payload = out.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=java_integer, help="Record size in bytes.")
    payload.add_argument("--payload-file", help="UTF-8 text file with payloads, of which one is chosen at random.")
    payload.add_argument("--payload-monotonic", action="store_true", help="Payload is an increasing integer.")
    out.add_argument("--payload-delimiter", default="\\n", help="Delimiter of --payload-file (new line).")
    text = "Maximum records/sec, approximately; -1 for no limit."
    out.add_argument("--throughput", type=float, required=True, help=text)
    text = "Producer properties: linger.ms=10 batch.size=32768."
    out.add_argument("--command-property", nargs="+", metavar="NAME=VALUE", help=text)
    out.add_argument("--producer-props", nargs="+", metavar="NAME=VALUE", help="Deprecated: --command-property.")
    out.add_argument("--command-config", help="Producer config properties file.")
    out.add_argument("--producer.config", help="Deprecated: --command-config.")
    text = "Records to leave out of the steady state statistics."
    out.add_argument("--warmup-records", type=java_long, default=0, help=text)
    text = "Interval in milliseconds at which to print progress info."
    out.add_argument("--reporting-interval", type=java_long, default=5000, help=text)
    return out


def _check(parser: VerbOptions, options: argparse.Namespace) -> None:
    """Check the options; print Kafka's error message and exit with status 1 if they are invalid.

    A negative ``--warmup-records`` becomes 0.
    """
    options.warmup_records = max(options.warmup_records, 0)
    if options.num_records <= 0:
        parser.error("--num-records should be greater than zero.")
    if options.warmup_records >= options.num_records:
        parser.error(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    if options.record_size is not None and options.record_size <= 0:
        parser.error("--record-size should be greater than zero.")
    given = (options.bootstrap_server, *(getattr(options, name) for pair in RENAMED for name in pair[:2]))
    if all(value is None for value in given):
        parser.error(NO_SERVERS)
    for old, new, old_shown, new_shown in RENAMED:
        if getattr(options, old) is not None and getattr(options, new) is not None:
            parser.error(f"{new_shown} and {old_shown} cannot be specified together.")
    if options.reporting_interval <= 0:
        parser.error("--reporting-interval should be greater than zero.")


def _properties(options: argparse.Namespace) -> dict[str, str]:
    """Return the producer's properties: those of the file, overridden by those of the command line.

    In ``options``, values of deprecated options move to the new ones, and the client settings are stored.

    Raises:
        ToolFailed: a property of the command line is malformed.
        CommandFailed: the properties file cannot be read or is malformed.
    """
    for old, new, old_shown, new_shown in RENAMED:
        if getattr(options, old) is not None:
            print(
                f"Option {old_shown} has been deprecated and will be removed in a future version. "
                f"Use {new_shown} instead."
            )
            setattr(options, new, getattr(options, old))
    out: dict[str, str] = {}
    for text in options.command_property or ():
        parts = text.split("=")
        if len(parts) != 2 or not parts[1]:
            raise ToolFailed(f"Invalid property: {text}")
        out[parts[0]] = parts[1]
    options.client_settings = dict(out)
    return read_client_config(options.command_config) | out


def _payloads(options: argparse.Namespace, settings: Mapping[str, str]) -> Iterator[bytes]:
    """Return an iterator of record values, which has at least ``--num-records`` of them.

    Raises:
        ToolFailed: the file of ``--payload-file`` is missing, empty or not UTF-8, its delimiter is no regular
            expression, or a payload is too large.
    """
    if options.payload_file is not None:
        lines, env = _read_payloads(options), BlockingEnv()
        check_record_size(max(map(len, lines)), settings)
        return iter(lambda: lines[int(env.random() * len(lines))], None)
    if options.record_size is not None:
        check_record_size(options.record_size, settings)
        letters = bytes(_FIRST + byte % _LETTERS for byte in range(256))
        return iter(lambda: os.urandom(options.record_size).translate(letters), None)
    return (str(number).encode() for number in range(options.num_records))


def _read_payloads(options: argparse.Namespace) -> list[bytes]:
    path = os.path.abspath(options.payload_file)
    print(f"Reading payloads from: {path}")
    delimiter = "\n" if options.payload_delimiter == "\\n" else options.payload_delimiter
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except (OSError, UnicodeError):
        text = ""
    if not text:
        raise ToolFailed("File does not exist or empty file provided.")
    lines = [line.encode() for line in split_payloads(text, delimiter)]
    if not lines:
        raise ToolFailed("File does not exist or empty file provided.")
    print(f"Number of records read: {len(lines)}")
    return lines


class PerformanceTest:
    """Producer of test records, which measures the time of each from its creation to its acknowledgement.

    Records that are flushed together, of all partitions, count as acknowledged at the end of the flush.
    """

    def __init__(self, options: argparse.Namespace, batches: RecordBatches) -> None:
        self._options = options
        self._batches = batches
        self._env = BlockingEnv()
        self._waiting: list[tuple[int, int, ProducerStatistics | None]] = []
        self._stats = ProducerStatistics(options.num_records, options.reporting_interval, self._env.now_ms())
        self._steady: ProducerStatistics | None = None

    async def run(self, payloads: Iterator[bytes]) -> None:
        """Send ``--num-records`` records at the rate of ``--throughput``, and print the statistics.

        ``payloads``: values of the records.

        Raises:
            CommandFailed: a batch was refused.
            ProtocolError: a retriable error of InitProducerId lasts.
            OSError: a leader cannot be reached.
        """
        options, env = self._options, self._env
        if options.warmup_records:
            print(
                f"Warmup first {options.warmup_records} records. Steady state results will print after the complete "
                "test summary."
            )
        start_ms = env.monotonic_ms()
        for number in range(options.num_records):
            if options.warmup_records and number == options.warmup_records:
                left = options.num_records - options.warmup_records
                self._steady = ProducerStatistics(left, options.reporting_interval, env.now_ms(), is_steady=True)
                self._stats.prints_windows = False
            payload = next(payloads)
            self._waiting.append((env.now_ms(), len(payload), self._steady))
            self._batches.add(ParsedRecord(None, payload))
            if self._batches.is_due:
                await self._flush()
            pause = pause_s(number + 1, options.throughput, env.monotonic_ms() - start_ms)
            if pause:
                await self._flush()
                await env.sleep(pause)
        await self._flush()
        now_ms = env.now_ms()
        self._stats.print_total(now_ms)
        if self._steady is not None:
            self._steady.print_total(now_ms)

    async def _flush(self) -> None:
        await self._batches.flush()
        now_ms, waiting, self._waiting = self._env.now_ms(), self._waiting, []
        for sent_ms, size, steady in waiting:
            self._stats.record(now_ms - sent_ms, size, now_ms)
            if steady is not None:
                steady.record(now_ms - sent_ms, size, now_ms)


async def _produce(client: ClusterClient, options: argparse.Namespace, settings: Mapping[str, str]) -> None:
    codec, acks = settings.get("compression.type", "none"), settings.get("acks", "all")
    if acks not in ACKS or codec.upper() not in CompressionType.__members__:
        raise ToolFailed(f"Invalid value {acks if acks not in ACKS else codec} for configuration")
    is_idempotent = settings.get("enable.idempotence", "true").lower() == "true"
    payloads = _payloads(options, settings)
    numbers = await topic_partitions(client, options.topic)
    producer = TopicProducer(
        client, options.topic, CompressionType[codec.upper()], ACKS[acks], idempotent=is_idempotent
    )
    record_options = argparse.Namespace(topic=options.topic, partition=None, header=())
    await PerformanceTest(options, RecordBatches(producer, numbers, record_options)).run(payloads)


def run(arguments: list[str]) -> int:
    """Run ``kafka-producer-perf-test``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` or no arguments (status 0), or invalid arguments (status 1).
    """
    parser = _parser()
    options = parser.parse_args(arguments or ["--help"])
    _check(parser, options)
    try:
        settings = _properties(options)
    except (ToolFailed, CommandFailed) as error:
        sys.stdout.flush()
        return STDERR.print(ToolFailed(str(error)))
    options.bootstrap_server = options.bootstrap_server or settings.get("bootstrap.servers")
    options.client_id = settings.get("client.id", "perf-producer-client")
    return run_tool(options, lambda client: _produce(client, options, settings), FailureFormat("", to_stderr=True))
