"""Checks for files with credentials that other users of the machine can read, for ``ottla doctor``.

Credentials are in the metadata log and its snapshots (SCRAM keys, delegation tokens, passwords of dynamic settings), in
``bootstrap.checkpoint``, in the files of ``ottla serve --secure``, in key stores, and in settings files with passwords.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator

from ottla.controller.config.config_keys import broker_key
from ottla.controller.storage_formatter import BOOTSTRAP_FILE
from ottla.log.directory.log_directory import METADATA_TOPIC
from ottla.log.java_properties import Property
from ottla.tools.doctor import DOUBTFUL, ConfigFinding
from ottla.tools.security_setup import CA_FILE

_OTHERS = 0o077
_DIRECTORIES = ("log.dirs", "log.dir", "metadata.log.dir")
_KEY_FILES = ("ssl.keystore.location", "sasl.oauthbearer.assertion.private.key.file")


def find_exposed_paths(data_dir: str) -> Iterator[str]:
    """Yield the paths in a data directory that may hold credentials and that group or others have a permission for.

    A directory that cannot be listed is skipped.
    """
    metadata = f"{data_dir}/{METADATA_TOPIC}-0"
    for name in _names(data_dir):
        is_own = name.startswith("secure") and name.endswith((".json", ".pem", ".properties")) and name != CA_FILE
        if (is_own or name.startswith(BOOTSTRAP_FILE)) and is_exposed(f"{data_dir}/{name}"):
            yield f"{data_dir}/{name}"
    if is_exposed(metadata):
        yield metadata
    for name in _names(metadata):
        if is_exposed(f"{metadata}/{name}"):
            yield f"{metadata}/{name}"


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def is_exposed(path: str) -> bool:
    """Return True if a file or directory exists and its mode has any permission for group or others.

    False also if it cannot be examined, such as in a directory that is not accessible.
    """
    try:
        return bool(stat.S_IMODE(os.stat(path).st_mode) & _OTHERS)
    except OSError:
        return False


def _is_password(key: str) -> bool:
    known = broker_key(key)
    return known is not None and known.type == "PASSWORD"


def describe_exposed_path(path: str) -> str:
    """Return the message for a path that other users can read, with its mode and the command that corrects it.

    Raises:
        OSError: the path does not exist any more.
    """
    mode = stat.S_IMODE(os.stat(path).st_mode)
    wanted = "700" if os.path.isdir(path) else "600"
    return f"credentials may be read by other users: {path} (mode {mode:04o}); run chmod {wanted} on it"


def diagnose_directory(data_dir: str) -> list[ConfigFinding]:
    """Return a finding for each path in a data directory that may hold credentials and that group or others can use."""
    return [
        ConfigFinding(0, "log.dirs", DOUBTFUL, describe_exposed_path(path)) for path in find_exposed_paths(data_dir)
    ]


def diagnose_files(lines: Iterable[Property], settings_file: str | None) -> list[ConfigFinding]:
    """Return a finding for each exposed path that settings name, and for an exposed settings file with passwords.

    The paths are key files, and in data directories the files that may hold credentials.

    Args:
        lines: the settings.
        settings_file: path of the settings file; None for environment variables.
    """
    out = []
    named = list(lines)
    for line in named:
        if line.key in _DIRECTORIES:
            for directory in line.value.split(","):
                found = find_exposed_paths(directory.strip()) if directory.strip() else ()
                out += [ConfigFinding(line.number, line.key, DOUBTFUL, describe_exposed_path(path)) for path in found]
        elif line.key.endswith(_KEY_FILES) and is_exposed(line.value.strip()):
            out.append(ConfigFinding(line.number, line.key, DOUBTFUL, describe_exposed_path(line.value.strip())))
    secret = next((line for line in named if line.value and _is_password(line.key)), None)
    if secret is not None and settings_file is not None and is_exposed(settings_file):
        out.append(ConfigFinding(secret.number, secret.key, DOUBTFUL, describe_exposed_path(settings_file)))
    return out
