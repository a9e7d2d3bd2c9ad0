"""Identity of a log directory: the file ``meta.properties`` with cluster id, node id and directory id.

Source: ``MetaProperties.java``, ``MetaPropertiesEnsemble.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.env.disk import Disk
from ottla.log.checkpoints import checkpoint_files
from ottla.log.checkpoints.checkpoint_files import META_PROPERTIES_FILE, CorruptFile
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string


@dataclass(slots=True, frozen=True)
class MetaProperties:
    """Contents of ``meta.properties`` (version 1): cluster id, node id and directory id (16 bytes)."""

    cluster_id: str
    node_id: int
    directory_id: bytes


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return the contents of a log directory's ``meta.properties``; None if the directory is not formatted.

    Raises:
        CorruptFile: ``meta.properties`` lacks a property, or one is malformed.
    """
    path = f"{directory}/{META_PROPERTIES_FILE}"
    if not disk.exists(path):
        return None
    values = checkpoint_files.read_properties(disk, path)
    try:
        return MetaProperties(values["cluster.id"], int(values["node.id"]), uuid_from_string(values["directory.id"]))
    except (KeyError, ValueError) as error:
        raise CorruptFile(f"{path}: {error}") from None


def write_meta_properties(disk: Disk, directory: str, identity: MetaProperties, now_ms: int) -> None:
    """Replace and sync ``meta.properties`` of a log directory.

    ``now_ms``: wall clock, for the comment with the date.
    """
    values = {
        "node.id": str(identity.node_id),
        "directory.id": uuid_to_string(identity.directory_id),
        "version": "1",
        "cluster.id": identity.cluster_id,
    }
    checkpoint_files.write_properties(disk, f"{directory}/{META_PROPERTIES_FILE}", values, now_ms)
