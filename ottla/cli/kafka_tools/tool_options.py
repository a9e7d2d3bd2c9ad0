"""Argument parsers and error output of Kafka's command line tools: ``--long`` options, Kafka's messages, exit status 1.

Source: ``CommandLineUtils``, ``CommandDefaultOptions`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, AnyStr, NamedTuple, NoReturn

from ottla.cli.arguments import MAX_INT16, MAX_INT32, MAX_INT64, CommandParser, bootstrap_servers
from ottla.cli.common import run_with_client
from ottla.cli.errors import CommandFailed
from ottla.cli.kafka_tools.java_errors import java_text, message_text
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.wire.errors import ErrorCode, ProtocolError

KAFKA_VERSION = "4.3.1"
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")
_ARGPARSE_TEXTS = (
    (re.compile(r"unrecognized argument: -*([^ =;]+).*", re.DOTALL), r"\1 is not a recognized option"),
    (re.compile(r"argument -*(\S+): expected one argument"), r"Option \1 requires an argument"),
    (re.compile(r"argument -*(\S+): invalid \S+ value: '(.*)'", re.DOTALL), r"Cannot parse argument '\2' of option \1"),
)

_VERB_TEXTS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"the following arguments are required: COMMAND"), "too few arguments"),
    (re.compile(r"the following arguments are required: ([^/]+).*"), r"argument \1 is required"),
    (
        re.compile(r"argument (\S+): invalid java_(\w+) value: '(.*)'", re.DOTALL),
        lambda found: (
            f"argument {found[1]}: could not convert '{found[3]}' to {found[2].capitalize()} "
            f'(For input string: "{found[3]}")'
        ),
    ),
    (
        re.compile(r"argument COMMAND: unknown: ([^;]+)(?:; did you mean .*?)? \(choose from (.*)\)"),
        lambda found: f"invalid choice: '{found[1]}' (choose from '" + "', '".join(found[2].split(", ")) + "')",
    ),
)
"""Messages of ``argparse`` with those of ``argparse4j``, which Kafka's tools with verbs use."""


def java_short(text: str) -> int:
    """Convert a number as ``Short.parseShort`` of Java does.

    Raises:
        ValueError: the text is no number of 16 bits.
    """
    return _java_number(text, MAX_INT16)


def java_integer(text: str) -> int:
    """Argument type: convert a number as ``Integer.valueOf`` of Java does.

    Raises:
        ValueError: the text is no number of 32 bits.
    """
    return _java_number(text, MAX_INT32)


def java_long(text: str) -> int:
    """Argument type: convert a number as ``Long.valueOf`` of Java does.

    Raises:
        ValueError: the text is no number of 64 bits.
    """
    return _java_number(text, MAX_INT64)


def _java_number(text: str, most: int) -> int:
    if _NUMBER.fullmatch(text) is None or not -most - 1 <= (number := int(text)) <= most:
        raise ValueError(text)
    return number


class _StoreOnce(argparse.Action):
    """Action of an option with one value, which may stand on the command line only once."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        """Store the value of an option; if it already has one, print an error and exit with status 1."""
        if getattr(namespace, self.dest) is not None:
            name = self.option_strings[0].lstrip("-")
            parser.error(f"Found multiple arguments for option {name}, but you asked for only one")
        setattr(namespace, self.dest, values)


class ToolOptions(CommandParser):
    """Argument parser of a Kafka tool without verbs. In the result an absent option is None, an absent flag False.

    Attributes:
        error_prefix: text before the message of a parse error.
    """

    error_prefix = ""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"ottla {name}", description=text, add_help=False)
        self.text = text
        self.flag("help", "Print usage information.")
        self.flag("version", "Display Kafka version.")

    def option(self, name: str, text: str, kind: Callable[[str], Any] = str, *, is_repeated: bool = False) -> None:
        """Add an option with a value, converted by ``kind``; one that ``is_repeated`` collects its values in a list."""
        action: Any = "append" if is_repeated else _StoreOnce
        self.add_argument(f"--{name}", help=text.replace("%", "%%"), type=kind, action=action)

    def optional_value(self, name: str, text: str) -> None:
        """Add an option with a value that may be omitted: it is an empty text then, and None without the option."""
        self.add_argument(f"--{name}", help=text.replace("%", "%%"), nargs="?", const="")

    def flag(self, name: str, text: str) -> None:
        """Add option ``--name`` without a value; ``text`` is its help."""
        self.add_argument(f"--{name}", help=text.replace("%", "%%"), action="store_true")

    def connection(self, required: str = "REQUIRED: ", *, has_controller: bool = False) -> None:
        """Add ``--bootstrap-server``, ``--command-config`` and with ``has_controller`` also ``--bootstrap-controller``.

        ``required``: text before the help of ``--bootstrap-server``. No option is enforced.
        """
        self.option("bootstrap-server", f"{required}The Kafka server to connect to.")
        if has_controller:
            self.option("bootstrap-controller", "The Kafka controllers to connect to.")
        self.option("command-config", "Property file containing configs to be passed to Admin Client.")
        self.set_defaults(context=None, needs_utf8=True)

    def error(self, message: str) -> NoReturn:
        """Print the message of ``argparse`` in the words of Kafka's tools on standard error, and exit with status 1."""
        for pattern, text in _ARGPARSE_TEXTS:
            message = pattern.sub(text, message)
        print(f"{self.error_prefix}{message}", file=sys.stderr)
        raise SystemExit(1)

    def fail_with_usage(self, message: str) -> NoReturn:
        """Print a message and the usage on standard error, and exit with status 1."""
        print(message, file=sys.stderr)
        self.print_help(sys.stderr)
        raise SystemExit(1)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the parsed arguments.

        With ``--help`` or without arguments print the usage and exit with status 1; with ``--version`` print Kafka's
        version and exit with status 0.
        """
        options = self.parse_args(arguments)
        if options.help or not arguments:
            self.fail_with_usage(self.text)
        if options.version:
            print(KAFKA_VERSION)
            raise SystemExit(0)
        return options

    def check_bootstrap(self, options: argparse.Namespace) -> None:
        """Print the usage and exit with status 1 unless ``--bootstrap-server`` has valid addresses."""
        if not (options.bootstrap_server or "").strip():
            self.fail_with_usage("Error while validating the bootstrap address\n")
        try:
            bootstrap_servers(options.bootstrap_server)
        except argparse.ArgumentTypeError:
            self.fail_with_usage("Please provide valid host:port like host1:9091,host2:9092\n")

    def require(self, options: argparse.Namespace, *names: str) -> None:
        """Print the usage and exit with status 1 unless all named options are on the command line."""
        for name in names:
            if not has(options, name):
                self.fail_with_usage(f'Missing required argument "[{name}]"')

    def require_single(self, options: argparse.Namespace, *names: str) -> None:
        """Print the usage and exit with status 1 unless exactly one of the named options is on the command line."""
        if sum(has(options, name) for name in names) != 1:
            shown = ", ".join(f"[{name}]" for name in names)
            self.fail_with_usage(f"Exactly one of the following arguments is required: {shown}")

    def exclude(self, options: argparse.Namespace, used: str, *others: str) -> None:
        """Print the usage and exit with status 1 if option ``used`` is combined with one of ``others``."""
        for name in others:
            if has(options, used) and has(options, name):
                self.fail_with_usage(f'Option "[{used}]" can\'t be used with option "[{name}]"')


class VerbOptions(CommandParser):
    """Argument parser of a Kafka tool with verbs, such as ``kafka-cluster``; an error is one line, with exit status 1.

    Attributes:
        error_format: form of the line, with ``tool`` and ``message``.
    """

    error_format = "{tool}: error: {message}"

    def error(self, message: str) -> NoReturn:
        """Print the message of ``argparse`` in the words of Kafka's tools on standard error, and exit with status 1."""
        for pattern, text in _VERB_TEXTS:
            message = pattern.sub(text, message)
        tool = self.prog.removeprefix("ottla ").split()[0]
        print(self.error_format.format(tool=tool, message=message), file=sys.stderr)
        raise SystemExit(1)


def add_servers(parser: argparse.ArgumentParser, *short: str) -> None:
    """Add ``--bootstrap-server`` and ``--bootstrap-controller``, which exclude each other, to a parser.

    ``short``: the short names of both, such as ``-b``, or none.
    """
    text = "A list of host/port pairs to use for establishing the connection to the Kafka {}."
    group = parser.add_mutually_exclusive_group()
    for name, kind, letter in zip(("server", "controller"), ("cluster", "controllers"), short or ("", ""), strict=True):
        group.add_argument(f"--bootstrap-{name}", *filter(None, [letter]), help=text.format(kind))
    parser.set_defaults(context=None, needs_utf8=True)


def key_values(items: Sequence[str] | None) -> dict[str, str]:
    """Return keys and values of options of the form ``key=value``; without ``=`` the value is an empty text."""
    return {key: value for key, _, value in (item.partition("=") for item in items or ())}


def has(options: argparse.Namespace, name: str) -> bool:
    """Return True if option or flag ``name`` is on the command line; an option with an empty value counts."""
    return getattr(options, name.replace("-", "_")) not in (None, False)


class ToolFailed(Exception):
    """Failure of a tool; the message is the text that Kafka's tool prints. `FailureFormat.print` prints it."""


class TerseFailure(ToolFailed):
    """Failure whose message is printed without the tool's prefix (``TerseException``)."""


def compile_regex(pattern: AnyStr) -> re.Pattern[AnyStr]:
    """Return the compiled regular expression ``pattern``; Python's syntax stands for Java's.

    Raises:
        ToolFailed: it is invalid.
    """
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        shown = pattern if isinstance(pattern, str) else pattern.decode(errors="replace")
        raise ToolFailed(f"{shown} is an invalid regex.") from None


class FailureFormat(NamedTuple):
    """Form in which a tool prints a failure, and its exit status then.

    Attributes:
        prefix: text before the message.
        has_class: True to print the Java class of an error code before its message.
        to_stderr: True to print on standard error, False on standard output.
        status: exit status of the tool after a failure.
    """

    prefix: str = "Error: "
    has_class: bool = False
    to_stderr: bool = False
    status: int = 1

    def print(self, error: Exception) -> int:
        """Print a failure in this form and return the exit status ``status``."""
        text = java_text(error) if self.has_class else message_text(error)
        prefix = "" if isinstance(error, TerseFailure) else self.prefix
        print(f"{prefix}{text}", file=sys.stderr if self.to_stderr else None)
        return self.status


STDERR = FailureFormat("", has_class=True, to_stderr=True)
"""Form of the tools that print the message of an ``ExecutionException`` on standard error."""


def run_tool(
    options: argparse.Namespace,
    work: Callable[[ClusterClient], Awaitable[None]],
    failures: FailureFormat = STDERR,
) -> int:
    """Call ``work`` with a client of the cluster of the options, which connects at its first request.

    A ToolFailed, CommandFailed or ProtocolError of ``work``, and invalid addresses, are printed in the form
    ``failures``.

    Returns:
        The exit status: 0, that of ``failures``, 1 after another failure, such as of the connection or its settings,
        or 130 after an interrupt.
    """
    status = 0

    async def print_failures(client: ClusterClient) -> None:
        nonlocal status
        try:
            await work(client)
        except (ToolFailed, ProtocolError, CommandFailed) as error:
            status = failures.print(error)

    bootstrap: str = options.bootstrap_server or getattr(options, "bootstrap_controller", None) or ""
    try:
        options.bootstrap = bootstrap_servers(bootstrap)
    except argparse.ArgumentTypeError:
        return failures.print(ToolFailed(f"Invalid url in bootstrap.servers: {bootstrap}"))
    return run_with_client(options, print_failures) or status


async def admin_channel(client: ClusterClient, options: argparse.Namespace) -> Channel:
    """Return a connection to any broker, or with ``--bootstrap-controller`` to the active controller."""
    if not getattr(options, "bootstrap_controller", None):
        return await client.bootstrap_channel()
    return await client.broker((await client.controllers()).controller_id)


def raise_for(code: int, message: str | None) -> None:
    """Raise an error code of a response as an exception; ``message`` is that of the response, if it has one.

    Raises:
        ProtocolError: the code is not 0.
    """
    if code:
        raise ProtocolError(ErrorCode(code), message)
