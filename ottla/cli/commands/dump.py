"""``ottla dump``: print files that Kafka has in a data directory as text or JSON, or verify them."""

from __future__ import annotations

import json
import os
import sys

from ottla.cli.arguments import command_parser
from ottla.env.log_escaping import escape
from ottla.log.checkpoints.checkpoint_files import CorruptFile
from ottla.runtime.real_disk import RealDisk
from ottla.tools.dump import dump_file
from ottla.tools.file_verification import find_problems
from ottla.wire.errors import WireError

TEXT = """Print segments, indexes, producer snapshots, metadata snapshots and checkpoints, of Ottla or of Kafka.
Records of the metadata log, of __consumer_offsets and of __transaction_state are decoded.

examples:
  ottla dump ottla-data/events-0/00000000000000000000.log
  ottla dump --verify ottla-data/events-0/*
  ottla dump -o json ottla-data/__cluster_metadata-0/00000000000000000000.log | jq .content
"""


def _verify(paths: list[str]) -> int:
    """Print the problems of each file; return exit status 1 if there are any, else 0."""
    status = 0
    for path in paths:
        try:
            found = list(find_problems(RealDisk(), os.path.abspath(path)))
        except OSError as error:
            found = [error.strerror or str(error)]
        except ValueError as error:
            found = [str(error)]
        for text in found:
            status = 1
            print(f"{path}: {text}")
    return status


def run(arguments: list[str]) -> int:
    """Print files as text or JSON, or with ``--verify`` only their problems; return 0, or 1 if a file has an error.

    The files after one that cannot be read are still printed.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("dump", TEXT)
    parser.add_argument("file", nargs="+", help="a file of a data directory")
    parser.add_argument("--shallow", action="store_true", help="print batches without their records")
    parser.add_argument("--verify", action="store_true", help="print only problems; exit status 1 if there are any")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="json: one object a line")
    options = parser.parse_args(arguments)
    status = 0
    if options.verify:
        return _verify(options.file)
    for path in options.file:
        is_named = options.output == "json"
        try:
            for row in dump_file(RealDisk(), os.path.abspath(path), deep=not options.shallow):
                if not is_named:
                    print(path)
                    is_named = True
                if options.output == "json":
                    print(json.dumps(row))
                else:
                    kind = row.pop("kind")
                    indent = "    " if kind == "record" else "  "
                    print(f"{indent}{kind} " + " ".join(f"{k}={escape(str(v))}" for k, v in row.items()))
        except (CorruptFile, WireError, ValueError, OSError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            print(f"ottla dump: {path}: {reason}", file=sys.stderr)
            status = 1
    return status
