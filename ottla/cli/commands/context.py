"""``ottla context``: store client settings of several clusters under names, and select the current one."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.arguments import bootstrap_servers, command_parser
from ottla.cli.common import OUTPUTS, parse_key_values, print_output
from ottla.cli.connection_settings import (
    BOOTSTRAP_SETTING,
    ConnectionSettings,
    connection_security,
    read_client_config,
)
from ottla.cli.contexts import Contexts, load_contexts, save_contexts
from ottla.cli.errors import CommandFailed
from ottla.env.log_escaping import escape

TEXT = f"""A context is the client settings of a cluster under a name: brokers, TLS, login. Commands use the current
context unless --bootstrap, --command-config, --context or a variable names another cluster. Contexts are in one file
that only its owner can read: $OTTLA_CONTEXTS, else ~/.config/ottla/contexts.toml.

examples:
  ottla context set local --bootstrap 127.0.0.1:9092
  ottla context set staging --command-config staging.properties
  ottla context set staging --set {BOOTSTRAP_SETTING}=kafka.staging:9093
  ottla context use staging
  ottla topic list --context local
  ottla context list
"""
HIDDEN = "[hidden]"
_SECRETS = ("password", "jaas", "secret", "ssl.keystore.key", "token")


def _parser() -> argparse.ArgumentParser:
    out = command_parser("context", TEXT)
    verbs = out.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in (
        ("list", "list contexts and their brokers"),
        ("show", "show the settings of a context; passwords are hidden"),
        ("use", "make a context the current one"),
        ("unuse", "unset the current context"),
        ("set", "create or change a context"),
        ("delete", "delete a context"),
    ):
        verb = verbs.add_parser(name, help=text, description=text)
        verb.set_defaults(needs_utf8=True)
        if name in ("list", "show"):
            verb.add_argument("-o", "--output", choices=OUTPUTS, default="text", help="format (default: text)")
        if name == "show":
            verb.add_argument("name", nargs="?", help="name of the context (default: the current one)")
        elif name not in ("list", "unuse"):
            verb.add_argument("name", help="name of the context")
        if name == "set":
            text = "client setting; may be repeated"
            verb.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=text)
            text = "brokers, separated by commas"
            verb.add_argument("-b", "--bootstrap", metavar="HOST:PORT", type=bootstrap_servers, help=text)
            text = "file of client settings, which are copied into the context"
            verb.add_argument("--command-config", metavar="FILE", help=text)
            verb.add_argument("--use", action="store_true", help="also make it the current context")
    return out


def _list(contexts: Contexts, options: argparse.Namespace) -> None:
    rows = [
        {"context": name, "current": name == contexts.current, "brokers": values.get(BOOTSTRAP_SETTING)}
        for name, values in sorted(contexts.settings.items())
    ]
    print_output(rows, options.output, "no contexts")


def _show(contexts: Contexts, options: argparse.Namespace) -> None:
    name = options.name or contexts.current
    if name is None:
        raise CommandFailed("no current context: ottla context use NAME")
    rows = [
        {"key": key, "value": HIDDEN if any(word in key for word in _SECRETS) else value}
        for key, value in contexts.get(name).items()
    ]
    print_output(rows, options.output, f"context {name} has no settings")


def _use(contexts: Contexts, options: argparse.Namespace) -> None:
    contexts.get(options.name)
    save_contexts(contexts._replace(current=options.name))


def _unuse(contexts: Contexts, options: argparse.Namespace) -> None:
    save_contexts(contexts._replace(current=None))


def _set(contexts: Contexts, options: argparse.Namespace) -> None:
    values = {**contexts.settings.get(options.name, {}), **read_client_config(options.command_config)}
    values |= parse_key_values(options.set)
    if options.bootstrap is not None:
        values[BOOTSTRAP_SETTING] = options.bootstrap
    if not values:
        raise CommandFailed("--bootstrap, --command-config or --set expected")
    try:
        bootstrap_servers(values.get(BOOTSTRAP_SETTING, "localhost:1"))
    except argparse.ArgumentTypeError as error:
        raise CommandFailed(f"{BOOTSTRAP_SETTING}: {error}") from None
    connection_security(ConnectionSettings(f"context {options.name}", values))
    current = options.name if options.use else contexts.current
    save_contexts(Contexts(current, {**contexts.settings, options.name: values}))


def _delete(contexts: Contexts, options: argparse.Namespace) -> None:
    contexts.get(options.name)
    current = None if contexts.current == options.name else contexts.current
    rest = {name: values for name, values in contexts.settings.items() if name != options.name}
    save_contexts(Contexts(current, rest))


VERBS = {"list": _list, "show": _show, "use": _use, "unuse": _unuse, "set": _set, "delete": _delete}


def run(arguments: list[str]) -> int:
    """Run ``ottla context``; return exit status 0, or 1 after a failure that is printed.

    Raises:
        SystemExit: ``--help`` (status 0) or invalid arguments (status 2).
    """
    options = _parser().parse_args(arguments)
    try:
        VERBS[options.verb](load_contexts(), options)
    except CommandFailed as error:
        print(f"ottla context: {escape(str(error))}", file=sys.stderr)
        return 1
    return 0
