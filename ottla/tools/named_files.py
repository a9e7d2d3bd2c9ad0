"""Checks of log directories, key and trust stores, for ``ottla doctor``: existence, access, matching keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from ottla.broker.config import listener_config
from ottla.broker.config.listener_config import ConfigException
from ottla.client.security_config import InvalidSecurityConfig
from ottla.controller.config.config_keys import canonical_values
from ottla.env.tls import InvalidTlsConfig
from ottla.log.java_properties import Property
from ottla.tools.doctor import WRONG, ConfigFinding

_FILES = (
    "ssl.keystore.location",
    "ssl.truststore.location",
    "sasl.oauthbearer.assertion.private.key.file",
)
_DIRECTORIES = ("log.dirs", "log.dir", "metadata.log.dir")


def file_problem(path: str) -> str | None:
    """Return the reason why a file cannot be read, followed by its path; None if it is readable."""
    if os.path.isdir(path):
        return f"is a directory: {path}"
    if not os.path.exists(path):
        return f"no such file: {path}"
    return None if os.access(path, os.R_OK) else f"cannot be read by this user: {path}"


def directory_problem(path: str) -> str | None:
    """Return the reason why a data directory cannot be used or created, followed by its path; None if it can.

    Nothing is created.
    """
    if os.path.exists(path):
        if not os.path.isdir(path):
            return f"is not a directory: {path}"
        usable = os.access(path, os.R_OK | os.W_OK | os.X_OK)
        return None if usable else f"cannot be written by this user: {path}"
    above = os.path.dirname(os.path.abspath(path))
    while not os.path.exists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        return f"cannot be created, {above} is not a directory: {path}"
    return None if os.access(above, os.W_OK | os.X_OK) else f"cannot be created below {above} by this user: {path}"


def diagnose_paths(lines: Iterable[Property]) -> list[ConfigFinding]:
    """Return findings for log directories that cannot be used, and for unreadable key and trust stores and keys."""
    out = []
    for line in lines:
        paths: list[str] = []
        check = file_problem
        if line.key in _DIRECTORIES:
            paths, check = [x.strip() for x in line.value.split(",")], directory_problem
        elif line.key.endswith(_FILES):
            paths = [line.value.strip()]
        found = (check(path) for path in paths if path)
        out += [ConfigFinding(line.number, line.key, WRONG, problem) for problem in found if problem]
    return out


def tls_problem(load: Callable[[], object]) -> str | None:
    """Call ``load``, which loads keys and certificates, and return the message of its InvalidTlsConfig.

    Returns:
        None if it succeeds, or fails for another reason, which other checks report.
    """
    try:
        load()
    except InvalidTlsConfig as error:
        return str(error)
    except (OSError, InvalidSecurityConfig, ConfigException):
        return None
    return None


def diagnose_listener_stores(lines: Iterable[Property]) -> list[ConfigFinding]:
    """Return findings for TLS listeners with a key or trust store that cannot be loaded, or a wrong key.

    There are none for a listener without a key store, or if the listeners are invalid: other checks report these.
    """
    by_key = {line.key: line for line in lines}
    values = canonical_values({line.key: line.value for line in by_key.values()})
    try:
        protocols = listener_config.security_protocols_by_listener(values)
    except ConfigException:
        return []
    return list(_store_findings(by_key, values, {n: p for n, p in protocols.items() if p.endswith("SSL")}))


def _store_findings(
    by_key: Mapping[str, Property], values: Mapping[str, str], listeners: Mapping[str, str]
) -> Iterator[ConfigFinding]:
    if not listeners:
        return
    # lazy: 14.4 ms, 1087 kB: only with a TLS listener
    from ottla.broker.security.authn.listener_security import listener_tls
    from ottla.runtime.ssl_contexts import client_ssl_context, server_ssl_context

    for name, protocol in listeners.items():
        try:
            tls = listener_tls(values, name, protocol)
        except InvalidSecurityConfig:
            continue  # reported by another rule
        if tls is None or tls.keystore is None:
            continue
        sides = (("ssl.keystore.location", server_ssl_context), ("ssl.truststore.location", client_ssl_context))
        seen = set[str]()
        for key, create in sides:
            problem = tls_problem(partial(create, tls))
            if problem is None or problem in seen:
                continue
            seen.add(problem)
            own = f"listener.name.{name.lower()}.{key}"
            line = by_key.get(own) or by_key.get(key)
            yield ConfigFinding(
                line.number if line else 0, line.key if line else key, WRONG, f"listener {name}: {problem}"
            )
