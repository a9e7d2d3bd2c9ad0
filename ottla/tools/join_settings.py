"""Settings that a node stores in its metadata directory after it joined a cluster: the controllers' addresses."""

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
    """Raised if a cluster cannot be joined; the message is one line for the user. The data directory is unchanged."""


def save_join_settings(disk: Disk, directory: str, joined: dict[str, str], now_ms: int) -> None:
    """Store the controller settings of a joined node in its metadata directory, for later starts."""
    kept = {key: joined[key] for key in (CONTROLLER_LISTENER_NAMES, BOOTSTRAP_SERVERS)}
    checkpoint_files.write_properties(disk, f"{directory}/{JOIN_PROPERTIES_FILE}", kept, now_ms)


def load_join_settings(disk: Disk, directory: str, values: dict[str, str]) -> dict[str, str]:
    """Return ``values`` plus the controller settings that the directory stores.

    ``values`` is returned itself if it names controllers, or if the directory stores no such settings.

    Raises:
        CorruptFile: the stored settings cannot be read.
    """
    path = f"{directory}/{JOIN_PROPERTIES_FILE}"
    if BOOTSTRAP_SERVERS in values or QUORUM_VOTERS in values or not disk.exists(path):
        return values
    return {**checkpoint_files.read_properties(disk, path), **values}
