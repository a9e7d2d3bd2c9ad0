"""``ottla doctor``: report problems of a broker's or client's configuration with their line numbers."""

from __future__ import annotations

import argparse
import os
import sys

from ottla.broker.config.node_config import settings_from_environment
from ottla.cli.arguments import command_parser
from ottla.cli.common import print_output
from ottla.log.java_properties import MalformedProperties, Property
from ottla.tools.client_doctor import diagnose_client, is_client_config
from ottla.tools.doctor import WRONG, ConfigFinding, diagnose, parse_settings
from ottla.tools.file_permissions import diagnose_directory, diagnose_files
from ottla.tools.named_files import diagnose_listener_stores, diagnose_paths

TEXT = """Check a server.properties, or with --env the KAFKA_* variables of Kafka's container image: addresses that
clients cannot reach, listeners without a protocol, more replicas than nodes, misspelt names, units that Kafka does not
know, settings of ZooKeeper; files that do not exist or cannot be read, keys and certificates that do not match or whose
password is wrong, data directories that cannot be written; and files with credentials that other users can read.

The settings of a client (a file with bootstrap.servers and without settings of a broker) are checked as such. Of a data
directory, only files with credentials that other users can read are named.

examples:
  ottla doctor server.properties
  ottla doctor client.properties
  ottla doctor ./ottla-data
  ottla doctor --env
Status: 0 no problem, 1 a problem was found, 2 the file cannot be read.
"""


def _text(finding: ConfigFinding, name: str) -> str:
    where = f"{name}:{finding.lineno}" if finding.lineno else name
    return f"{where}: {finding.severity}: {finding.key}: {finding.text}"


def run(arguments: list[str]) -> int:
    """Run ``ottla doctor``; return exit status 0 without errors, 1 with errors, or 2 if the file cannot be read.

    Warnings do not change the status. It is 2 also for a malformed properties file.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    parser = command_parser("doctor", TEXT)
    parser.add_argument("file", nargs="?", help="a server.properties file, client settings, or a data directory")
    parser.add_argument("--env", action="store_true", help="check the KAFKA_* environment variables")
    parser.add_argument(
        "-o", "--output", choices=["text", "json"], default="text", help="format of the output (default: text)"
    )
    options = parser.parse_args(arguments)
    if (options.file is None) == (not options.env):
        parser.error("a file or --env expected, one of them")
    lines, name = [], "environment"
    if options.file is not None and os.path.isdir(options.file):
        return _print(diagnose_directory(options.file), options, options.file, 0)
    if options.env:
        lines = [Property(0, key, value) for key, value in settings_from_environment(os.environ).items()]
    else:
        name = options.file
        try:
            with open(name, "rb") as file:
                lines = parse_settings(file.read())
        except (OSError, MalformedProperties) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            print(f"ottla doctor: {name}: {reason}", file=sys.stderr)
            return 2
    if is_client_config(lines):
        findings = [*diagnose_client(lines), *diagnose_files(lines, options.file)]
    else:
        found = {*diagnose(lines), *diagnose_paths(lines), *diagnose_listener_stores(lines)}
        findings = [*sorted(found), *diagnose_files(lines, options.file)]
    return _print(findings, options, name, len(lines))


def _print(findings: list[ConfigFinding], options: argparse.Namespace, name: str, settings: int) -> int:
    """Print findings as text or JSON; return exit status 1 if one of them is an error (`WRONG`), else 0.

    ``name``: name of the file, before each finding; ``settings``: number of checked settings.
    """
    if options.output == "json":
        rows = [{"number": f.lineno, "key": f.key, "severity": f.severity, "text": f.text} for f in findings]
        print_output(rows, "json")
    elif findings:
        print("\n".join(_text(f, name) for f in findings))
    else:
        print(f"{name}: nothing wrong in {settings} settings")
    return int(any(f.severity == WRONG for f in findings))
