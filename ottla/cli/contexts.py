"""Contexts: named client settings of several clusters in one file, which ``ottla context`` writes.

The file is TOML, readable by its owner only: a key ``current``, and a table ``contexts.NAME`` of Kafka's client
settings for each context.
"""

from __future__ import annotations

import json
import os
import tomllib
from typing import NamedTuple

from ottla.cli.arguments import suggestion
from ottla.cli.errors import CommandFailed

FILE_VARIABLE = "OTTLA_CONTEXTS"


def contexts_path() -> str:
    """Return the path of the file of contexts.

    It is ``$OTTLA_CONTEXTS``, else ``ottla/contexts.toml`` in ``$XDG_CONFIG_HOME`` (default ``~/.config``).
    """
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.environ.get(FILE_VARIABLE) or f"{base}/ottla/contexts.toml"


class Contexts(NamedTuple):
    """Client settings of a user's contexts by name, and the name of the current context, None without one."""

    current: str | None
    settings: dict[str, dict[str, str]]

    def get(self, name: str) -> dict[str, str]:
        """Return the client settings of a context.

        Raises:
            CommandFailed: the context does not exist.
        """
        if name not in self.settings:
            raise CommandFailed(f"context {name} does not exist{suggestion(name, self.settings)}")
        return self.settings[name]


def load_contexts() -> Contexts:
    """Read the file of contexts; return an empty `Contexts` if the file is absent.

    Raises:
        CommandFailed: the file cannot be read, or is malformed.
    """
    path = contexts_path()
    try:
        with open(path, "rb") as file:
            content = tomllib.load(file)
    except FileNotFoundError:
        return Contexts(None, {})
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path}: {error}") from None
    tables, current = content.get("contexts", {}), content.get("current")
    is_valid = isinstance(tables, dict) and all(isinstance(x, dict) for x in tables.values())
    if not is_valid or not isinstance(current, str | None):
        raise CommandFailed(f"{path}: current = NAME and tables [contexts.NAME] expected")
    settings = {name: {key: str(value) for key, value in table.items()} for name, table in tables.items()}
    return Contexts(current, settings)


def save_contexts(contexts: Contexts) -> None:
    """Replace the file of contexts atomically by one with mode 0600; missing directories are created.

    Raises:
        CommandFailed: the file cannot be written.
    """
    path = contexts_path()
    parts = [] if contexts.current is None else [f"current = {_quote(contexts.current)}\n"]
    for name, table in sorted(contexts.settings.items()):
        parts.append(f"\n[contexts.{_quote(name)}]\n")
        parts += [f"{_quote(key)} = {_quote(value)}\n" for key, value in table.items()]
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), 0o700, exist_ok=True)
        number = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(number, "w", encoding="utf-8") as file:
            file.write("".join(parts))
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None


def _quote(text: str) -> str:
    """Return a text as a TOML string; JSON's escapes are valid in TOML, except that DEL must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
