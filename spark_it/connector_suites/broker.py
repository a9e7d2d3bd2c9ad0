"""Broker of a test suite: ``python -m spark_it.connector_suites.broker ottla`` (or ``kafka``).

Reads settings (``NAME=VALUE``, one a line, up to an empty line) from standard input, starts the node, writes its
address to standard output, and stops the node at the end of the input.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from compat_tests.support.processes import KafkaProcess, NodeProcess, OttlaProcess

KINDS: dict[str, type[NodeProcess]] = {"ottla": OttlaProcess, "kafka": KafkaProcess}


def main() -> None:
    """Run the node until the end of the input; fail if an Ottla node has logged a traceback or ended with an error."""
    kind = sys.argv[1]
    settings = dict(line.rstrip("\n").split("=", 1) for line in iter(sys.stdin.readline, "\n"))
    with tempfile.TemporaryDirectory() as folder:
        with KINDS[kind](Path(folder, "node"), **settings) as node:
            print(node.bootstrap, flush=True)
            sys.stdin.read()
            status = node.stop()
        text = node.log.read_text(errors="replace")
        assert kind != "ottla" or ("Traceback" not in text and status == 0), f"exit status {status}: {text[-4000:]}"


if __name__ == "__main__":
    main()
