"""``ottla-compat --bootstrap HOST:PORT``: measure which stock clients work with a Kafka cluster, cell by cell."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from compat_tests.clients.client_matrix import CLIENTS, NO, format_table, measure_clients
from compat_tests.reports import html_report, junit_report, markdown_report


def main(arguments: list[str] | None = None) -> int:
    """Print the matrix and write reports; 1 where a cell failed."""
    parser = argparse.ArgumentParser("ottla-compat", description=__doc__)
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker of the cluster, any Kafka")
    parser.add_argument("--client", action="append", help="only this client; may be given again")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit XML report")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the matrix")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the matrix in Markdown")
    options = parser.parse_args(arguments)
    if unknown := set(options.client or ()) - {client.name for client in CLIENTS}:
        parser.error(f"no client {', '.join(sorted(unknown))}; there are {', '.join(c.name for c in CLIENTS)}")
    chosen = tuple(c for c in CLIENTS if not options.client or c.name in options.client)
    started = time.monotonic()
    rows = measure_clients(options.bootstrap, chosen)
    seconds = time.monotonic() - started
    print(format_table(rows))
    if options.junit:
        options.junit.write_text(junit_report(rows, options.bootstrap, seconds))
    if options.html:
        options.html.write_text(html_report(rows, options.bootstrap, seconds))
    if options.markdown:
        options.markdown.write_text(markdown_report(rows, options.bootstrap))
    return int(any(not isinstance(cells, str) and NO in cells.values() for cells in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
