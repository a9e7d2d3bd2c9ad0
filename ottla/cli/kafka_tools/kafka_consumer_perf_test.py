"""``ottla kafka-consumer-perf-test``: the tool ``kafka-consumer-perf-test.sh``.

Source: ``ConsumerPerformance`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping

from ottla.cli.connection_settings import read_client_config
from ottla.cli.errors import CommandFailed
from ottla.cli.kafka_tools.kafka_console_consumer import EARLIEST, LATEST, ConsoleConsumer, ConsumerPlan
from ottla.cli.kafka_tools.performance import MEGABYTE, decimal, format_date, ratio
from ottla.cli.kafka_tools.tool_options import (
    FailureFormat,
    ToolFailed,
    ToolOptions,
    has,
    java_integer,
    java_long,
    key_values,
    run_tool,
)
from ottla.cli.records.partition_fetcher import ReadRecord
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv

TEXT = "This tool is used to verify the consumer performance."
DEFAULT_DATE = "yyyy-MM-dd HH:mm:ss:SSS"
TIMEOUT_MS, INTERVAL_MS = 10_000, 5000
FIELDS = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, "
    "fetch.nMsg.sec"
)
_DIGITS = re.compile(r"[0-9]+")


def _interval(text: str) -> int:
    if _DIGITS.fullmatch(text) is None:
        raise ValueError(text)
    return java_long(text)


def _parser() -> ToolOptions:
    out = ToolOptions("kafka-consumer-perf-test", TEXT)
    out.connection()
    out.option("topic", "The topic to consume from.")
    out.option("include", "Regular expression specifying list of topics to include for consumption.")
    out.option("group", "The group id to consume on.")
    out.option("fetch-size", "Accepted for compatibility; has no effect.", java_integer)
    out.option("command-property", "Consumer config property: key=value.", is_repeated=True)
    out.flag("from-latest", "Start with the latest record where the group has no offset.")
    out.option("socket-buffer-size", "Accepted for compatibility; has no effect.", java_integer)
    out.option("consumer.config", "Deprecated: --command-config.")
    out.flag("show-detailed-stats", "Report statistics for each reporting interval.")
    out.option("timeout", "The maximum time in milliseconds between returned records.", java_long)
    out.option("messages", "Deprecated: --num-records.", java_long)
    out.option("num-records", "REQUIRED: The number of records to consume.", java_long)
    out.option("reporting-interval", "Interval in milliseconds at which to print progress info.", _interval)
    out.option("date-format", f"Format of times, with letters y, M, d, H, m, s and S ({DEFAULT_DATE}).")
    out.flag("hide-header", "Do not print the header.")
    return out


def _check(parser: ToolOptions, options: argparse.Namespace) -> None:
    """Check the combination of options, and move the values of deprecated options to the new ones.

    For an invalid combination the usage is printed, and the tool exits with status 1.
    """
    parser.require(options, "bootstrap-server")
    parser.require_single(options, "topic", "include")
    parser.require_single(options, "messages", "num-records")
    parser.exclude(options, "consumer.config", "command-config")
    if has(options, "messages"):
        print("Warning: --messages is deprecated. Use --num-records instead.")
        options.num_records = options.messages
    if has(options, "consumer.config"):
        print("Warning: --consumer.config is deprecated. Use --command-config instead.")
        options.command_config = getattr(options, "consumer.config")
    options.max_messages = options.num_records
    options.timeout_ms = TIMEOUT_MS if options.timeout is None else options.timeout
    options.partition = options.offset = None


class PerformanceConsumer(ConsoleConsumer):
    """Consumer that counts records and bytes, and prints the rates of reporting intervals or of the whole run."""

    def __init__(self, client: ClusterClient, options: argparse.Namespace, plan: ConsumerPlan) -> None:
        super().__init__(client, options, plan)
        self._stats_options = options
        self._clock = BlockingEnv()
        self._start_ms = self._report_ms = self._clock.now_ms()
        self._interval_ms = INTERVAL_MS if options.reporting_interval is None else options.reporting_interval
        self._date = options.date_format or DEFAULT_DATE
        self._bytes = 0
        self._reported = (0, 0)
        self._join_ms: int | None = None
        self._round_join_ms = 0

    def process(self, read: ReadRecord) -> None:
        """Count a record; start the next reporting interval if the current one has ended.

        With ``--show-detailed-stats`` the rates of the ended interval are printed.
        """
        super().process(read)
        now_ms = self._clock.now_ms()
        if self._join_ms is None:  # the time until the first record stands for that of the rebalance
            self._join_ms = self._round_join_ms = now_ms - self._start_ms
        self._bytes += len(read.record.key or b"") + len(read.record.value or b"")
        if now_ms - self._report_ms >= self._interval_ms:
            if self._stats_options.show_detailed_stats:
                self._print_interval(now_ms)
            self._report_ms, self._reported, self._round_join_ms = now_ms, (self._bytes, self.count), 0

    def _print_interval(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._report_ms
        size, count = (self._bytes - self._reported[0]) / MEGABYTE, self.count - self._reported[1]
        fetch_ms = elapsed_ms - self._round_join_ms
        rates = [1000 * ratio(value, fetch_ms) if fetch_ms > 0 else 0.0 for value in (size, count)]
        cells = (
            *(format_date(now_ms, self._date), "0", decimal(self._bytes / MEGABYTE, 4)),
            *(decimal(1000 * ratio(size, elapsed_ms), 4), str(self.count)),
            *(decimal(1000 * ratio(count, elapsed_ms), 4), str(self._round_join_ms), str(fetch_ms)),
            *(decimal(rate, 4) for rate in rates),
        )
        print(", ".join(cells))

    def print_total(self) -> None:
        """Print count, size and rates from the creation of this consumer until now."""
        end_ms, size, join_ms = self._clock.now_ms(), self._bytes / MEGABYTE, self._join_ms or 0
        elapsed_s, fetch_ms = (end_ms - self._start_ms) / 1000, end_ms - self._start_ms - join_ms
        cells = (
            *(format_date(self._start_ms, self._date), format_date(end_ms, self._date), decimal(size, 4)),
            *(decimal(ratio(size, elapsed_s), 4), str(self.count), decimal(ratio(self.count, elapsed_s), 4)),
            *(str(join_ms), str(fetch_ms), decimal(ratio(size, fetch_ms / 1000), 4)),
            decimal(ratio(self.count, fetch_ms / 1000), 4),
        )
        print(", ".join(cells))


async def _consume(client: ClusterClient, options: argparse.Namespace, settings: Mapping[str, str]) -> None:
    if options.reporting_interval == 0:
        raise ToolFailed("Reporting interval must be greater than 0.")
    format_date(0, options.date_format or DEFAULT_DATE)
    group = options.group or f"perf-consumer-{int(BlockingEnv().random() * 100_000)}"
    reset = LATEST if options.from_latest else EARLIEST
    values = {"isolation.level": "read_uncommitted", **settings}
    consumer = PerformanceConsumer(client, options, ConsumerPlan(group, reset, reset, values, None))
    try:
        await consumer.run()
        if consumer.count < options.num_records:
            print(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({options.timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        if not options.show_detailed_stats:
            consumer.print_total()
    finally:
        await consumer.close()


def run(arguments: list[str]) -> int:
    """Run ``kafka-consumer-perf-test``; return exit status 0, 1 after a printed failure, or 130 after an interrupt.

    Raises:
        SystemExit: ``--version`` (status 0), ``--help``, no arguments or invalid ones (status 1).
    """
    parser = _parser()
    options = parser.parse(arguments)
    _check(parser, options)
    if not options.hide_header:
        print("time, threadId, " + FIELDS if options.show_detailed_stats else "start.time, end.time, " + FIELDS)
    try:
        options.client_settings = key_values(options.command_property)
        settings = read_client_config(options.command_config) | options.client_settings
    except CommandFailed as error:
        parser.error(str(error))
    options.client_id = settings.get("client.id", "perf-consumer-client")
    return run_tool(options, lambda client: _consume(client, options, settings), FailureFormat("", to_stderr=True))
