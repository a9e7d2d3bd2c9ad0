"""``ottla top``: print the rates of topics or requests again and again, from the metrics pages of nodes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.cli.arguments import bootstrap_servers, command_parser, integer, seconds
from ottla.cli.common import OUTPUTS, print_output
from ottla.cli.errors import os_error_text
from ottla.cli.watching import clear_screen
from ottla.client.http_client import HttpFetchError, http_get
from ottla.env.log_escaping import escape
from ottla.runtime.blocking_env import BlockingEnv, run_blocking

TEXT = """Print the rates of topics or of requests repeatedly, on a terminal in place. The numbers come from the
metrics pages of nodes, so each node needs an HTTP listener for metrics (ottla.metrics.listener).

examples:
  ottla top --http 127.0.0.1:9404                  topics of one node, every two seconds
  ottla top --http a:9404 --http b:9404            sums of two nodes
  ottla top --http 127.0.0.1:9404 --by request     requests, errors and times of each API
  ottla top --http 127.0.0.1:9404 --times 1 -o json
"""
VARIABLE = "KAFKA_OTTLA_METRICS_LISTENER"
MAX_PAGE_BYTES = 64 << 20
_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_TOPICS = "kafka_server_brokertopicmetrics_"
_REQUESTS = "kafka_network_requestmetrics_"
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
"""Values of samples by name and labels."""


class Scrape(NamedTuple):
    """Metrics of all nodes, read at ``time_ms`` of the monotonic clock."""

    time_ms: float
    samples: Samples


def parse_metrics(text: str) -> Samples:
    """Return the samples of a page in Prometheus' text format by name and labels; lines of another form are skipped."""
    out: Samples = {}
    for line in text.splitlines():
        found = None if line.startswith("#") else _SAMPLE.match(line)
        if found is None:
            continue
        labels = tuple(
            (name, re.sub(r"\\.", lambda x: _ESCAPES.get(x[0], x[0]), value))
            for name, value in _LABEL.findall(found[2] or "")
        )
        try:
            out[found[1], labels] = float(found[3])
        except ValueError:
            continue
    return out


def merge_samples(pages: Iterable[Samples]) -> Samples:
    """Return the samples of several nodes merged: the sum of each sample, but of a quantile the maximum."""
    out: Samples = {}
    for page in pages:
        for key, value in page.items():
            is_quantile = any(name == "quantile" for name, _ in key[1])
            out[key] = max(out.get(key, value), value) if is_quantile else out.get(key, 0.0) + value
    return out


def _rate(before: Scrape, after: Scrape, name: str, labels: Mapping[str, str]) -> float:
    """Return the increase per second of counter ``name`` with ``labels`` between two scrapes.

    It is 0 for a counter that decreased, as after a restart. One that is missing in a scrape counts as 0 there.
    """
    key = name, tuple(labels.items())
    increase = after.samples.get(key, 0.0) - before.samples.get(key, 0.0)
    return round(max(increase, 0.0) * 1000 / max(after.time_ms - before.time_ms, 1.0), 1)


def topic_rates(before: Scrape, after: Scrape) -> list[dict[str, Any]]:
    """Return a row for each topic with records, bytes and fetches per second, those with most bytes first.

    Keys: ``topic``, ``records_in/s``, ``bytes_in/s``, ``bytes_out/s`` and ``fetches/s``. ``before``, ``after``: the two
    scrapes between which the rates are computed.
    """
    names = {labels[0][1] for name, labels in after.samples if name == f"{_TOPICS}messagesin_total" and labels}
    rows = [
        {
            "topic": topic,
            "records_in/s": _rate(before, after, f"{_TOPICS}messagesin_total", {"topic": topic}),
            "bytes_in/s": _rate(before, after, f"{_TOPICS}bytesin_total", {"topic": topic}),
            "bytes_out/s": _rate(before, after, f"{_TOPICS}bytesout_total", {"topic": topic}),
            "fetches/s": _rate(before, after, f"{_TOPICS}totalfetchrequests_total", {"topic": topic}),
        }
        for topic in names
    ]
    return sorted(rows, key=lambda row: (-float(row["bytes_in/s"]) - float(row["bytes_out/s"]), row["topic"]))


def request_rates(before: Scrape, after: Scrape) -> list[dict[str, Any]]:
    """Return a row for each API: requests and errors per second, and median and p99 of the total time in milliseconds.

    Keys: ``request``, ``requests/s``, ``errors/s``, ``median_ms`` and ``p99_ms``; those with most requests come first.
    The rates are those between the two scrapes. The times are those of the second, the maximum of the nodes, and None
    if the nodes have none.
    """
    names = {labels[0][1] for name, labels in after.samples if name == f"{_REQUESTS}requests_total" and labels}

    def errors(api: str) -> float:
        rows = [dict(x) for name, x in after.samples if name == f"{_REQUESTS}errors_total"]
        found = [x for x in rows if x.get("request") == api and x.get("error") != "NONE"]
        return round(sum(_rate(before, after, f"{_REQUESTS}errors_total", x) for x in found), 1)

    def quantile(api: str, text: str) -> float | None:
        return next(
            (
                round(value, 1)
                for (name, labels), value in after.samples.items()
                if name == f"{_REQUESTS}totaltimems" and dict(labels) == {"request": api, "quantile": text}
            ),
            None,
        )

    rows = [
        {
            "request": api,
            "requests/s": _rate(before, after, f"{_REQUESTS}requests_total", {"request": api}),
            "errors/s": errors(api),
            "median_ms": quantile(api, "0.5"),
            "p99_ms": quantile(api, "0.99"),
        }
        for api in names
    ]
    return sorted(rows, key=lambda row: (-float(row["requests/s"] or 0), row["request"]))


def _summary(after: Scrape) -> str:
    connections = after.samples.get(("ottla_connections", ()), 0.0)
    behind = after.samples.get(("kafka_server_replicamanager_underreplicatedpartitions", ()), 0.0)
    return f"{connections:.0f} connections, {behind:.0f} under-replicated partitions"


async def _scrape(env: BlockingEnv, addresses: Sequence[str]) -> Scrape:
    pages = []
    for address in addresses:
        raw = await http_get(env, f"http://{address}/metrics", max_bytes=MAX_PAGE_BYTES)
        pages.append(parse_metrics(raw.decode(errors="replace")))
    return Scrape(env.monotonic_ms(), merge_samples(pages))


async def _top(options: argparse.Namespace) -> None:
    env, count = BlockingEnv(), 0
    rates = {"topic": topic_rates, "request": request_rates}[options.by]
    before = await _scrape(env, options.http)
    while count != options.times:
        await env.sleep(options.interval)
        after = await _scrape(env, options.http)
        rows = rates(before, after)[: options.limit]
        if options.output == "text":
            clear_screen(options.output)
            print(_summary(after))
        print_output(rows, options.output, f"no {options.by}s")
        sys.stdout.flush()
        before, count = after, count + 1


def _parser() -> argparse.ArgumentParser:
    out = command_parser("top", TEXT)
    text = f"HTTP listener of a node; may be repeated (default: ${VARIABLE})"
    out.add_argument("--http", action="append", type=bootstrap_servers, metavar="HOST:PORT", help=text)
    out.add_argument("--by", choices=["topic", "request"], default="topic", help="rows of the table (default: topic)")
    text = "seconds between two tables (default: 2)"
    out.add_argument("--interval", type=seconds, default=2.0, metavar="S", help=text)
    out.add_argument("--times", type=integer(1), metavar="N", help="stop after printing N tables")
    out.add_argument("--limit", type=integer(1), default=20, metavar="N", help="rows of a table (default: 20)")
    text = "format of the output (default: text)"
    out.add_argument("-o", "--output", choices=OUTPUTS, default="text", help=text)
    return out


def run(arguments: list[str]) -> int:
    """Run ``ottla top``; return exit status 0, 1 if a node cannot be read, or 130 after an interrupt.

    Raises:
        SystemExit: ``--help`` (status 0), or invalid arguments or no HTTP listener (status 2).
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    options.http = options.http or [x for x in [os.environ.get(VARIABLE)] if x]
    if not options.http:
        parser.error("--http HOST:PORT is required")
    try:
        run_blocking(_top(options))
    except KeyboardInterrupt:
        return 130
    except HttpFetchError as error:
        cause = error.__context__
        text = os_error_text(cause) if isinstance(cause, OSError) else str(error)
        print(f"ottla: {', '.join(options.http)}: {escape(text)}", file=sys.stderr)
        return 1
    return 0
