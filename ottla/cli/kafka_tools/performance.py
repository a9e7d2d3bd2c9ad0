"""Statistics, formats, throttling and payloads of ``kafka-producer-perf-test`` and ``kafka-consumer-perf-test``.

Source: ``ProducerPerformance``, ``ConsumerPerformance`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from math import inf, isinf, isnan, nan

from ottla.cli.kafka_tools.tool_options import ToolFailed, compile_regex, java_integer
from ottla.cli.times import local_time
from ottla.wire.record_batch.batch_header import HEADER_BYTES

MEGABYTE = 1024 * 1024
MAX_LATENCIES = 500_000
MAX_REQUEST_SIZE = "max.request.size"
MAX_PAUSE_S = 365 * 86400.0
_MAX_RECORD_OVERHEAD = 21
_PATTERN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)


def ratio(value: float, by: float) -> float:
    """Return ``value`` divided by ``by`` as Java computes it: infinite or NaN for a division by zero."""
    if by:
        return value / by
    return nan if not value else inf


def decimal(value: float, digits: int) -> str:
    """Return a number with ``digits`` digits after the decimal point, as Java's ``%f`` prints it."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{value:.{digits}f}"


def format_date(ms: int, pattern: str) -> str:
    """Return a time since 1970 in the local time zone, in a pattern of Java's ``SimpleDateFormat``.

    The pattern may have the letters y, M, d, H, m, s and S.

    Raises:
        ToolFailed: the pattern has another letter.
    """
    at = local_time(ms)
    fields = {"y": at.year, "M": at.month, "d": at.day, "H": at.hour, "m": at.minute, "s": at.second, "S": ms % 1000}
    out = []
    for part in _PATTERN.finditer(pattern):
        text, letter = part[0], part[2]
        if letter is None:
            out.append(text if part[1] is None else part[1].replace("''", "'") or "'")
        elif letter not in fields:
            raise ToolFailed(f"Illegal pattern character '{letter}'")
        else:
            value = fields[letter] % 100 if text == "yy" else fields[letter]
            out.append(str(value).zfill(len(text)))
    return "".join(out)


def split_payloads(text: str, delimiter: str) -> list[str]:
    """Return the parts of a text between matches of ``delimiter``, a regular expression, as Java's ``Scanner`` does.

    Raises:
        ToolFailed: the delimiter is no regular expression.
    """
    out, start = [], 0
    for found in compile_regex(delimiter).finditer(text):
        if found.end() > 0 and found.start() < len(text):  # an empty match at an end separates nothing
            out.append(text[start : found.start()])
            start = found.end()
    return [*out, text[start:]] if start < len(text) else out


def check_record_size(size_bytes: int, settings: Mapping[str, str]) -> None:
    """Check that a record without key, with a value of ``size_bytes``, fits into ``max.request.size`` of ``settings``.

    Raises:
        ToolFailed: it does not fit, or the setting is no number.
    """
    limit = settings.get(MAX_REQUEST_SIZE, str(MEGABYTE))
    try:
        most = java_integer(limit)
    except ValueError:
        text = f"Invalid value {limit} for configuration {MAX_REQUEST_SIZE}: Not a number of type INT"
        raise ToolFailed(text) from None
    length_bytes = max(-(-(2 * size_bytes).bit_length() // 7), 1)
    least = HEADER_BYTES + _MAX_RECORD_OVERHEAD + 1 + length_bytes + size_bytes + 1
    if least > most:
        raise ToolFailed(
            f"The message is {least} bytes when serialized which is larger than {most}, which is the value of the "
            f"{MAX_REQUEST_SIZE} configuration."
        )


def pause_s(count: int, throughput: float, elapsed_ms: float) -> float:
    """Return the time in seconds for which a producer waits before its next record; 0 for less than 1 ms.

    Args:
        count: number of records sent.
        throughput: records per second; 0 or less for no limit.
        elapsed_ms: time since the start.
    """
    if not throughput > 0:
        return 0.0
    ahead_ms = count * 1000 / throughput - elapsed_ms
    return min(ahead_ms / 1000, MAX_PAUSE_S) if ahead_ms > 1 else 0.0


class ProducerStatistics:
    """Counts and latencies of acknowledged records, printed for each reporting interval and at the end.

    Args:
        count: expected number of records; from 1,000,000 on, percentiles are those of each (count // 500,000)-th
            record.
        interval_ms: reporting interval.
        start_ms: time of the start.
        is_steady: True for the statistics of the records after the warm-up.

    Attributes:
        prints_windows: False to print only the total.
    """

    def __init__(self, count: int, interval_ms: int, start_ms: int, *, is_steady: bool = False) -> None:
        self._sampling = count // min(count, MAX_LATENCIES)
        self._interval_ms = interval_ms
        self._is_steady = is_steady
        self._start_ms = self._window_start_ms = start_ms
        self._latencies = array("i")
        self._count = self._bytes = self._latency_sum = self._latency_max = 0
        self._window = [0, 0, 0, 0]
        self.prints_windows = True

    def record(self, latency_ms: int, size: int, now_ms: int) -> None:
        """Count an acknowledged record of ``size`` bytes; print the statistics of the interval if it has ended.

        The next interval starts at ``now_ms`` then.
        """
        if self._count % self._sampling == 0:
            self._latencies.append(latency_ms)
        self._count += 1
        self._bytes += size
        self._latency_sum += latency_ms
        self._latency_max = max(self._latency_max, latency_ms)
        count, size_sum, latency_sum, latency_max = self._window
        self._window = [count + 1, size_sum + size, latency_sum + latency_ms, max(latency_max, latency_ms)]
        if now_ms - self._window_start_ms >= self._interval_ms:
            if self._is_steady and self._count == self._window[0]:
                print("In steady state.")
            if self.prints_windows:
                self._print_window(now_ms - self._window_start_ms)
            self._window_start_ms = now_ms
            self._window = [0, 0, 0, 0]

    def _print_window(self, elapsed_ms: int) -> None:
        count, size_sum, latency_sum, latency_max = self._window
        print(
            f"{count} records sent, {decimal(ratio(1000.0 * count, elapsed_ms), 1)} records/sec "
            f"({decimal(ratio(1000.0 * size_sum, elapsed_ms) / MEGABYTE, 2)} MB/sec), "
            f"{decimal(ratio(latency_sum, count), 1)} ms avg latency, {decimal(latency_max, 1)} ms max latency."
        )

    def print_total(self, now_ms: int) -> None:
        """Print rates since the start, and average, maximum and percentiles of the latency."""
        elapsed_ms, count = now_ms - self._start_ms, self._count
        latencies = sorted(self._latencies)
        percentiles = [latencies[int(part * len(latencies))] if latencies else 0 for part in (0.5, 0.95, 0.99, 0.999)]
        shown = ", ".join(
            f"{value} ms {name}" for value, name in zip(percentiles, ("50th", "95th", "99th", "99.9th"), strict=True)
        )
        print(
            f"{count}{' steady state' if self._is_steady else ''} records sent, "
            f"{decimal(ratio(1000.0 * count, elapsed_ms), 6)} records/sec "
            f"({decimal(ratio(1000.0 * self._bytes, elapsed_ms) / MEGABYTE, 2)} MB/sec), "
            f"{decimal(ratio(self._latency_sum, count), 2)} ms avg latency, "
            f"{decimal(self._latency_max, 2)} ms max latency, {shown}."
        )
