"""Argument parser of the commands, which suggests the nearest known word in its one-line errors, and argument types."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn

MAX_INT16, MAX_INT32, MAX_INT64 = 2**15 - 1, 2**31 - 1, 2**63 - 1
SYNONYMS = {
    "add": ("create", "set"),
    "alter": ("config", "set", "partitions"),
    "configure": ("config",),
    "ls": ("list",),
    "new": ("create",),
    "remove": ("delete",),
    "rm": ("delete", "remove"),
    "show": ("describe", "list"),
    "delete": ("remove",),
    "create": ("add", "set"),
    "consumer": ("consume",),
    "producer": ("produce",),
    "topics": ("topic",),
    "groups": ("group",),
    "start": ("serve",),
}
"""Commands, verbs and options of other tools, each with the names that Ottla's commands use for the same thing."""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the synonym of a word in ``candidates``, else the most similar candidate; None without a match."""
    # lazy: 1.9 ms, 145 kB
    import difflib

    names = list(candidates)
    synonym = next((name for name in SYNONYMS.get(word, ()) if name in names), None)
    return synonym or next(iter(difflib.get_close_matches(word, names, 1, 0.6)), None)


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """Return ``; did you mean X?`` for the nearest word in ``candidates``, or an empty string if no word is similar."""
    found = nearest(word, candidates)
    return "" if found is None else f"; did you mean {found}?"


class CommandParser(argparse.ArgumentParser):
    """``argparse`` parser of a command: errors are one line with status 2, the description keeps its line breaks.

    The parsers of Kafka's tools are subclasses, whose errors have status 1.
    """

    on_parse: ClassVar[Callable[[CommandParser], None] | None] = None
    """Function called with each parser before it parses, used by shell completion to read its options; else None."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        """Print the error in one line on standard error, with a hint at ``--help``, and exit with status 2."""
        shown = message.removeprefix("argument ")
        print(f"{self.prog}: {shown} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse arguments; exit with status 2 for an unknown one.

        A command that sets ``needs_utf8`` also exits with status 2 for an argument that is not UTF-8.

        Returns:
            The namespace and an empty list.
        """
        if CommandParser.on_parse is not None:
            CommandParser.on_parse(self)
        if self.get_default("needs_utf8"):
            for word in args or ():
                if any("\udc80" <= character <= "\udcff" for character in word):
                    self.error(f"not UTF-8: {ascii(word)[1:-1]}")
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            word = next((x for x in rest if x.startswith("-")), rest[0])
            known = self._option_string_actions if word.startswith("-") else ()
            self.error(f"unrecognized argument: {word}{suggestion(word.partition('=')[0], known)}")
        return found, rest

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is not among the choices; the message suggests the nearest choice."""
        if action.choices is not None and value not in action.choices:
            names = [str(x) for x in action.choices]
            listed = f"{suggestion(str(value), names)} (choose from {', '.join(names)})"
            raise argparse.ArgumentError(action, f"unknown: {value}{listed}")


def command_parser(name: str, text: str) -> CommandParser:
    """Return a `CommandParser` for ``ottla NAME`` with ``text`` as its description."""
    return CommandParser(f"ottla {name}", description=text)


def parse_integer(text: str) -> int | None:
    """Return the value of a decimal integer of up to 19 digits, with an optional minus sign; None for other text."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def integer(low: int, high: int = MAX_INT32) -> Callable[[str], int]:
    """Return an argument type that converts a decimal integer from ``low`` to ``high``, both included.

    It raises ArgumentTypeError for other text.
    """

    def convert(text: str) -> int:
        value = parse_integer(text)
        if value is None:
            raise argparse.ArgumentTypeError(f"whole number expected: {text}")
        if not low <= value <= high:
            limits = f"at least {low}" if value < low else f"at most {high}"
            raise argparse.ArgumentTypeError(f"out of range: {text} ({limits})")
        return value

    return convert


def seconds(text: str) -> float:
    """Argument type: convert a number of seconds, from 0 to 2^31 - 1; fractions are allowed.

    Raises:
        ArgumentTypeError: the text is no number or out of range.
    """
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"number of seconds expected: {text}") from None
    if not 0 <= value <= MAX_INT32:
        raise argparse.ArgumentTypeError(f"out of range: {text} (0 to {MAX_INT32})")
    return value


def names(kind: str, candidates: Sequence[str]) -> Callable[[str], str]:
    """Return an argument type that checks a comma-separated list of words from ``candidates`` and returns the text.

    Case is ignored; the type raises ArgumentTypeError for an unknown word. ``kind`` names the kind of word in that
    message, such as ``state``.
    """

    def convert(text: str) -> str:
        for word in text.split(","):
            if word.strip().lower() not in (name.lower() for name in candidates):
                near = suggestion(word.strip(), candidates)
                raise argparse.ArgumentTypeError(f"unknown {kind}: {word}{near} (choose from {', '.join(candidates)})")
        return text

    return convert


def bootstrap_servers(text: str) -> str:
    """Argument type: check a comma-separated list of ``HOST:PORT`` and return it unchanged.

    Raises:
        ArgumentTypeError: an element has another form, or its port is not from 1 to 65535.
    """
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        number = parse_integer(port)
        if not host or number is None or not 0 < number < 65536:
            raise argparse.ArgumentTypeError(f"HOST:PORT expected: {part.strip() or text}")
    return text
