"""Parser of a command's arguments: errors of one line, with the nearest known word, and types with limits."""

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
"""Words of other tools, and what they are called here."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most like a word, or a synonym of it; None if none is."""
    # lazy: 1.9 ms, 145 kB
    import difflib

    names = list(known)
    synonym = next((name for name in SYNONYMS.get(word, ()) if name in names), None)
    return synonym or next(iter(difflib.get_close_matches(word, names, 1, 0.6)), None)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean X?``, or nothing."""
    found = nearest(word, known)
    return "" if found is None else f"; did you mean {found}?"


class CommandParser(argparse.ArgumentParser):
    """Parser whose errors are one line and status 2, and whose description keeps its lines."""

    on_parse: ClassVar[Callable[[CommandParser], None] | None] = None
    """Called with each parser before it parses; completion of words looks at the options of a command so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": argparse.RawDescriptionHelpFormatter, **options})

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the help is, and exit with status 2."""
        shown = message.removeprefix("argument ")
        print(f"{self.prog}: {shown} ({self.prog} --help)", file=sys.stderr)
        raise SystemExit(2)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse; an unknown argument is an error here, where the options of the subcommand are known.

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
        """Refuse a value that is no choice, with the nearest one."""
        if action.choices is not None and value not in action.choices:
            names = [str(x) for x in action.choices]
            listed = f"{suggestion(str(value), names)} (choose from {', '.join(names)})"
            raise argparse.ArgumentError(action, f"unknown: {value}{listed}")


def command_parser(name: str, text: str) -> CommandParser:
    """Return the parser of a command."""
    return CommandParser(f"ottla {name}", description=text)


def parse_integer(text: str) -> int | None:
    """Return a whole number in decimal digits; None if it is not written so."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None


def integer(low: int, high: int = MAX_INT32) -> Callable[[str], int]:
    """Return an argument type: a whole number within limits."""

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
    """Argument type: a time in seconds, 0 or more."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"number of seconds expected: {text}") from None
    if not 0 <= value <= MAX_INT32:
        raise argparse.ArgumentTypeError(f"out of range: {text} (0 to {MAX_INT32})")
    return value


def names(what: str, known: Sequence[str]) -> Callable[[str], str]:
    """Return an argument type: some of the known words with commas between, in any case."""

    def convert(text: str) -> str:
        for word in text.split(","):
            if word.strip().lower() not in (name.lower() for name in known):
                near = suggestion(word.strip(), known)
                raise argparse.ArgumentTypeError(f"unknown {what}: {word}{near} (choose from {', '.join(known)})")
        return text

    return convert


def bootstrap_servers(text: str) -> str:
    """Argument type: ``HOST:PORT``, or several with commas between."""
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        number = parse_integer(port)
        if not host or number is None or not 0 < number < 65536:
            raise argparse.ArgumentTypeError(f"HOST:PORT expected: {part.strip() or text}")
    return text
