"""Listing of the entries of a log directory by kind (partition, deleted, future, stray, foreign), and deletion.

Kinds are recognised by name (`ottla.log.file_names`). The error of an unusable log directory is here, too.

Source: ``LogManager.loadLogs``, ``LogManager.deleteLogs``, ``Utils.delete`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.env.disk import Disk, is_transient
from ottla.log.checkpoints.checkpoint_files import PARTITION_METADATA_FILE
from ottla.log.file_names import (
    REMOTE_INDEX_CACHE_DIR,
    SuffixedDir,
    TopicPartition,
    parse_partition_dir,
    parse_segment_file,
    parse_suffixed_dir,
)


def list_partition_dirs(disk: Disk, path: str) -> dict[TopicPartition, str]:
    """Return the path of each directory named ``topic-partition``, by partition; ``__cluster_metadata-0`` is included.

    ``path``: the log directory.
    """
    out = {}
    for name in disk.listdir(path):
        at = parse_partition_dir(name)
        if at is not None and disk.is_dir(f"{path}/{name}"):
            out[at] = f"{path}/{name}"
    return out


def list_suffixed_dirs(disk: Disk, path: str, suffix: str) -> list[tuple[SuffixedDir, str]]:
    """Return (parsed name, path) of the directories named ``topic-partition.uniqueId`` plus ``suffix``."""
    out = []
    for name in disk.listdir(path):
        marked = parse_suffixed_dir(name) if name.endswith(suffix) else None
        if marked is not None and marked.suffix == suffix and disk.is_dir(f"{path}/{name}"):
            out.append((marked, f"{path}/{name}"))
    return out


def list_foreign_entries(disk: Disk, path: str) -> list[str]:
    """Return the paths of entries that Kafka does not create: other directories, and files with a partition's name.

    A symbolic link to a file or to a missing target counts as a file.
    """
    out = []
    for name in disk.listdir(path):
        is_kafka_name = bool(name == REMOTE_INDEX_CACHE_DIR or parse_partition_dir(name) or parse_suffixed_dir(name))
        if is_kafka_name != disk.is_dir(f"{path}/{name}"):
            out.append(f"{path}/{name}")
    return out


def contains_partition_files(disk: Disk, path: str) -> bool:
    """Return True if a directory contains a partition's files; False if it must not be read (PermissionError)."""
    try:
        names = disk.list_files(path)
    except PermissionError:
        return False
    return PARTITION_METADATA_FILE in names or any(parse_segment_file(name) for name in names)


def delete_partition_dir(disk: Disk, path: str) -> None:
    """Delete the directory of a deleted partition with its files; called in a thread, since it waits for the disk.

    Its log files are removed first, as in Kafka: of a symbolic link the files in the target are removed, then the link.

    Raises:
        OSError: not everything was removed.
    """
    for name in disk.list_files(path):
        if parse_segment_file(name) is not None:
            disk.unlink(f"{path}/{name}")
    disk.rmtree(path)


def log_directory_error(path: str, error: OSError) -> OSError:
    """Return an OSError with a readable message for ``error``, with which a log directory was not created or locked.

    A transient error (`is_transient`) is returned unchanged.
    """
    if is_transient(error):
        return error
    if isinstance(error, FileExistsError):
        return OSError(f"{path} is not a readable log directory (it is a file or a broken symbolic link)")
    why = "part of its path is a file" if isinstance(error, NotADirectoryError) else error.strerror or error
    return OSError(f"Failed to create or lock data directory {path} ({why})")
