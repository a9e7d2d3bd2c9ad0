"""Pages of `docs/reference/` that are generated from the code: ``python -m devtools.docs.reference`` writes them."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

from devtools.docs.api_pages import api_page, errors_page, page_name
from devtools.docs.config_pages import index_page as config_index_page
from devtools.docs.config_pages import topic_page
from devtools.docs.config_topics import TOPICS
from devtools.docs.limits_page import limits_page
from devtools.docs.metrics_page import metrics_page
from devtools.docs.python_api import python_api_page
from devtools.docs.record_pages import PAGES as RECORD_PAGES
from devtools.docs.record_pages import index_page, record_page
from ottla.broker.api_spec import ApiSpec, MutationQuota
from ottla.broker.dispatch.api_registry import API_SPECS
from ottla.cli.main import COMMANDS, import_command
from ottla.wire.api_keys import request_spec

WHERE = Path(__file__).parent.parent.parent / "docs" / "reference"
NOTE = "<!-- written by python -m devtools.docs.reference -->"


def _listeners(spec: ApiSpec) -> str:
    """Return a table cell with the types of listeners that serve an API, and ``forwarded`` if brokers forward it."""
    ends = {"broker": spec.broker, "controller": spec.controller}
    listeners = " and ".join(name for name, endpoint in ends.items() if endpoint is not None)
    return f"{listeners}, forwarded" if spec.broker is not None and spec.forwarding is not None else listeners


def _quota(spec: ApiSpec) -> str:
    """Return a table cell with what an API counts for client quotas."""
    if isinstance(spec.quota, MutationQuota):
        return f"time, and partitions changed; strict from v{spec.quota.strict_since}"
    return spec.quota.value


def _permissions(spec: ApiSpec) -> str:
    """Return a table cell with the permissions that a request of an API may need, at a broker or at the controller."""
    permissions = [f"{permission.operation.name} {permission.resource.name}" for permission in spec.permissions]
    return ", ".join(name.lower().replace("_", " ") for name in dict.fromkeys(permissions))


def api_row(spec: ApiSpec) -> str:
    """Return the Markdown row of an API on the page of all APIs."""
    schema = request_spec(spec.key)
    newest = schema.versions.high - (1 if schema.latest_unstable else 0)
    cells = (
        str(int(spec.key)),
        f"[{spec.key.api_name}]({page_name(spec.key)})",
        f"{spec.min_version}-{spec.max_version}",
        f"{schema.versions.low}-{newest}",
        _listeners(spec),
        _quota(spec),
        _permissions(spec),
    )
    return f"| {' | '.join(cells)} |"


def apis() -> str:
    """Return the Markdown page of all APIs: versions, listeners, quota and permissions of each."""
    lines = [
        "# APIs and versions",
        NOTE,
        "",
        "This page lists the APIs that a node serves, with the versions it advertises and those of Kafka 4.3.1's",
        "schemas. A request for another API or version closes the connection. A forwarded request is authorized and",
        "answered by the active controller. The last column has the permissions that a request may need; which of them",
        "it needs depends on the resources it names. The quota is what counts for the quotas of a client: time on the",
        "event loop, bytes, or partitions that are created and deleted. Each API has a page with its flow, fields,",
        "error codes and an annotated example; see also the [error codes](errors.md) and the",
        "[stored records](records/README.md).",
        "",
        "| key | API | Ottla | Kafka 4.3.1 | listeners | quota | permissions |",
        "|---|---|---|---|---|---|---|",
        *map(api_row, API_SPECS),
    ]
    return "\n".join(lines) + "\n"


def _parser(command: str) -> argparse.ArgumentParser:
    """Return the argument parser that a command of ``ottla`` creates; the command is called with ``--help``."""
    shown: list[argparse.ArgumentParser] = []

    def keep(parser: argparse.ArgumentParser, file: object = None) -> None:
        shown.append(parser)

    with mock.patch.object(argparse.ArgumentParser, "print_help", keep), contextlib.suppress(SystemExit):
        import_command(command)(["--help"])
    return shown[0]


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield a parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _parsers(each)


def help_screens() -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each command and subcommand, such as ``ottla topic create``, with the lines of its help."""
    for command in COMMANDS:
        for parser in _parsers(_parser(command)):
            with mock.patch.dict(os.environ, COLUMNS="100"):
                yield parser.prog, [line.rstrip() for line in parser.format_help().rstrip().splitlines()]


def cli() -> str:
    """Return the Markdown page of all commands, with the help screen of each."""
    lines = [
        "# Commands",
        NOTE,
        "",
        "`ottla COMMAND --help` and `ottla COMMAND VERB --help` print what is on this page.",
        "",
        "**Cluster.** `--bootstrap HOST:PORT` names the cluster. Without it, the first of these that is set counts:",
        "`bootstrap.servers` in the file of `--command-config`, that of the context of `--context`, the variable",
        "`OTTLA_BOOTSTRAP`, `bootstrap.servers` of the context that `OTTLA_CONTEXT` names, that in the file that",
        "`OTTLA_COMMAND_CONFIG` names, that of the current context (`ottla context use`), `127.0.0.1:9092`. An empty",
        "variable is not set. TLS and login come from the same file or context. The current context has no effect",
        "where `--bootstrap` or `OTTLA_BOOTSTRAP` names brokers.",
        "",
        "**Status.** 0: done. 1: the command failed while it ran; the last line on standard error names the cause. 2:",
        "the arguments are wrong. 130: interrupted. A reader that closes standard output early ends a command with",
        "status 1 and without a message.",
        "",
        "**Output.** `-o json` prints JSON on standard output, an empty list included; `-o yaml` and `-o csv` print",
        "the same rows, with lists in cells as JSON. In text, an empty result is one line on standard error, such as",
        "`no topics`.",
        "",
    ]
    for prog, screen in help_screens():
        command = prog.removeprefix("ottla ")
        text = f": {COMMANDS[command]}" if command in COMMANDS else ""
        lines += [f"{'##' if text else '###'} {prog}{text}", "", "```text", *screen, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "config.md": config_index_page,
    **{f"config/{topic}.md": partial(topic_page, topic) for topic in TOPICS},
    "apis.md": apis,
    "cli.md": cli,
    "limits.md": limits_page,
    "metrics.md": metrics_page,
    "python-api.md": python_api_page,
    "errors.md": lambda: errors_page(API_SPECS),
    "records/README.md": index_page,
    **{page_name(spec.key): partial(api_page, spec) for spec in API_SPECS},
    **{f"records/{name}.md": partial(record_page, page) for name, page in RECORD_PAGES.items()},
}


def main() -> None:
    """Write the pages in `PAGES` to ``docs/reference``; that of the tests by behaviour is not one of them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, page in PAGES.items():
        (WHERE / name).parent.mkdir(exist_ok=True)
        (WHERE / name).write_text(page())


if __name__ == "__main__":
    main()
