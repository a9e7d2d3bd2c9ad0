"""Connection settings of a command, from options, client properties files, environment variables and contexts."""

from __future__ import annotations

import argparse
import os
from typing import NamedTuple

from ottla.cli.arguments import bootstrap_servers
from ottla.cli.errors import CommandFailed, os_error_text
from ottla.client.connection_security import NO_SECURITY, ConnectionSecurity

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "OTTLA_BOOTSTRAP"
BOOTSTRAP_SETTING = "bootstrap.servers"
CONFIG_VARIABLE = "OTTLA_COMMAND_CONFIG"
CONTEXT_VARIABLE = "OTTLA_CONTEXT"


class ConnectionSettings(NamedTuple):
    """Client settings, and their source for error messages: path of a file, an option, ``context NAME``, or empty."""

    source: str
    values: dict[str, str]


def read_client_config(path: str | None) -> dict[str, str]:
    """Return the client settings of a properties file; empty without a path.

    Raises:
        CommandFailed: the file cannot be read or is malformed.
    """
    if not path:
        return {}
    # lazy: 1.1 ms, 36 kB: most clusters require no security settings
    from ottla.log.java_properties import MalformedProperties, load_settings

    try:
        with open(path, "rb") as file:
            return load_settings(file.read())
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None
    except MalformedProperties as error:
        raise CommandFailed(f"{path}: {error}") from None


def _context_settings(name: str | None) -> ConnectionSettings | None:
    """Return the client settings of a context, of the current one without a name; None if there is no current context.

    Raises:
        CommandFailed: the context does not exist, or the file of contexts cannot be read.
    """
    # lazy: 3.8 ms, 158 kB: json is there, and tomllib is small
    from ottla.cli.contexts import contexts_path, load_contexts

    if name is None and not os.path.exists(contexts_path()):
        return None
    contexts = load_contexts()
    chosen = name or contexts.current
    return None if chosen is None else ConnectionSettings(f"context {chosen}", contexts.get(chosen))


def find_settings(options: argparse.Namespace) -> ConnectionSettings:
    """Return the client settings of a command, empty without a source; the first source that is present wins.

    The order is ``--command-config`` with the settings of ``--command-property``, ``--context``, ``$OTTLA_CONTEXT``,
    ``$OTTLA_COMMAND_CONFIG``, and the current context unless an option or ``$OTTLA_BOOTSTRAP`` names brokers.

    Raises:
        CommandFailed: a file cannot be read or is malformed, or a context does not exist.
    """
    given = getattr(options, "client_settings", None)
    if options.command_config or given:
        source = options.command_config or "--command-property"
        return ConnectionSettings(source, read_client_config(options.command_config) | (given or {}))
    named = options.context or os.environ.get(CONTEXT_VARIABLE) or None
    by_variable = os.environ.get(CONFIG_VARIABLE)
    if named is None and by_variable:
        return ConnectionSettings(by_variable, read_client_config(by_variable))
    if named is None and (options.bootstrap is not None or os.environ.get(BOOTSTRAP_VARIABLE)):
        return ConnectionSettings("", {})
    return _context_settings(named) or ConnectionSettings("", {})


def resolve_bootstrap(options: argparse.Namespace, settings: ConnectionSettings) -> str:
    """Return the bootstrap servers of a command: ``HOST:PORT``, separated by commas.

    The first of these that is set: ``--bootstrap-server``; the client settings if ``--command-config`` or ``--context``
    selects them; ``$OTTLA_BOOTSTRAP``; other client settings; `DEFAULT_BOOTSTRAP`.

    Raises:
        CommandFailed: an address is not ``HOST:PORT``.
    """
    if options.bootstrap is not None:
        return str(options.bootstrap)
    by_settings = (settings.source, settings.values.get(BOOTSTRAP_SETTING))
    by_variable = (BOOTSTRAP_VARIABLE, os.environ.get(BOOTSTRAP_VARIABLE))
    has_option = options.command_config or options.context
    for source, text in (by_settings, by_variable) if has_option else (by_variable, by_settings):
        if text:
            try:
                return bootstrap_servers(text)
            except argparse.ArgumentTypeError as error:
                raise CommandFailed(f"{source}: {error}") from None
    return DEFAULT_BOOTSTRAP


def connection_security(settings: ConnectionSettings) -> ConnectionSecurity:
    """Return the TLS and SASL configuration that client settings describe; `NO_SECURITY` for empty settings.

    Raises:
        CommandFailed: a setting is invalid, or settings contradict each other. Key and trust stores are not read yet.
    """
    if not settings.values:
        return NO_SECURITY
    # lazy: 4.2 ms, 139 kB: most clusters require no security settings
    from ottla.client.security_config import InvalidSecurityConfig, parse_connection_security

    try:
        return parse_connection_security(settings.values)
    except OSError as error:
        raise CommandFailed(f"{settings.source}: {os_error_text(error)}") from None
    except InvalidSecurityConfig as error:
        raise CommandFailed(f"{settings.source}: {error}") from None
