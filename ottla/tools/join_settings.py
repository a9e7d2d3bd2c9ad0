"""Addresses of the controllers that a node stores in its metadata directory after ``ottla serve --join``."""

from __future__ import annotations

from ottla.broker.config.listener_config import (
    BOOTSTRAP_SERVERS,
    CONTROLLER_LISTENER_NAMES,
    JOIN_PROPERTIES_FILE,
    QUORUM_VOTERS,
    ConfigException,
)
from ottla.env.disk import Disk
from ottla.log.checkpoints import checkpoint_files


class CannotJoin(ConfigException):
    """Raised if a cluster cannot be joined, with one line for the user; no log directory is formatted before."""


def save_join_settings(disk: Disk, directory: str, joined: dict[str, str], now_ms: int) -> None:
    """Store the controllers' listener names and addresses in the metadata directory of a node, for later starts.

    ``joined``: settings of the node; the other ones are not stored.
    """
    kept = {key: joined[key] for key in (CONTROLLER_LISTENER_NAMES, BOOTSTRAP_SERVERS)}
    checkpoint_files.write_properties(disk, f"{directory}/{JOIN_PROPERTIES_FILE}", kept, now_ms)


def load_join_settings(disk: Disk, directory: str, values: dict[str, str]) -> dict[str, str]:
    """Return ``values`` plus the controller settings that metadata directory ``directory`` stores.

    ``values`` is returned itself if it names controllers, or if the directory stores no such settings.

    Raises:
        CorruptFile: the stored settings are malformed; OSError: they cannot be read.
    """
    path = f"{directory}/{JOIN_PROPERTIES_FILE}"
    if BOOTSTRAP_SERVERS in values or QUORUM_VOTERS in values or not disk.exists(path):
        return values
    return {**checkpoint_files.read_properties(disk, path), **values}
