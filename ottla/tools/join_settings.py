"""What a node that joined a cluster keeps in its data directory: where the controllers were."""

from __future__ import annotations

from ottla.broker.config.listener_config import (
    BOOTSTRAP_SERVERS,
    CONTROLLER_LISTENER_NAMES,
    JOINED_FILE,
    QUORUM_VOTERS,
    ConfigException,
)
from ottla.env.disk import Disk
from ottla.log.checkpoints import checkpoint_files


class CannotJoin(ConfigException):
    """The cluster cannot be joined like that; the message is one line for the user. Nothing was changed."""


def save_join_settings(disk: Disk, directory: str, joined: dict[str, str], now_ms: int) -> None:
    """Keep what later starts need, so that nobody has to be asked again."""
    kept = {key: joined[key] for key in (CONTROLLER_LISTENER_NAMES, BOOTSTRAP_SERVERS)}
    checkpoint_files.write_properties(disk, f"{directory}/{JOINED_FILE}", kept, now_ms)


def load_join_settings(disk: Disk, directory: str, values: dict[str, str]) -> dict[str, str]:
    """The settings with what the directory remembers; the same where they say it themselves, or nothing is there.

    Raises:
        CorruptFile: it cannot be read.
    """
    path = f"{directory}/{JOINED_FILE}"
    if BOOTSTRAP_SERVERS in values or QUORUM_VOTERS in values or not disk.exists(path):
        return values
    return {**checkpoint_files.read_properties(disk, path), **values}
