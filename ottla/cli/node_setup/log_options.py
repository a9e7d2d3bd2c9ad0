"""Command line options of a node's log. A module of its own, since ``ottla cluster`` does not import a node."""

from __future__ import annotations

import argparse

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
LEVEL_VARIABLE, FORMAT_VARIABLE = "OTTLA_LOG_LEVEL", "OTTLA_LOG_FORMAT"


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--log-level`` and ``--log-format`` to a command's parser."""
    text = f"minimum level of the log on standard error (default: ${LEVEL_VARIABLE}, else info)"
    parser.add_argument("--log-level", choices=LEVELS, help=text)
    text = f"format of the log: text, or json with one object a line (default: ${FORMAT_VARIABLE}, else text)"
    parser.add_argument("--log-format", choices=FORMATS, help=text)
