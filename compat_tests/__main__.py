"""``python -m compat_tests --bootstrap HOST:PORT``: the client matrix against any cluster."""

from __future__ import annotations

import argparse
import sys

from compat_tests.clients.client_matrix import CLIENTS, NO, format_table, measure_clients


def main() -> int:
    """Print the matrix; 1 where a cell failed."""
    parser = argparse.ArgumentParser("python -m compat_tests", description=__doc__)
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker of the cluster, any Kafka")
    parser.add_argument("--client", action="append", help="only this client; may be given again")
    options = parser.parse_args()
    chosen = tuple(c for c in CLIENTS if not options.client or c.name in options.client)
    if not chosen:
        parser.error(f"no such client; there are {', '.join(c.name for c in CLIENTS)}")
    rows = measure_clients(options.bootstrap, chosen)
    print(format_table(rows))
    return int(any(not isinstance(cells, str) and NO in cells.values() for cells in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
