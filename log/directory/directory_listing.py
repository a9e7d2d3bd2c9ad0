"""Directories in a log directory, by the form of their names (`ottla.log.file_names`).

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
    """Return the paths of the directories named ``topic-partition``, the metadata log's included."""
    out = {}
    for name in disk.listdir(path):
        at = parse_partition_dir(name)
        if at is not None and disk.is_dir(f"{path}/{name}"):
            out[at] = f"{path}/{name}"
    return out


def list_suffixed_dirs(disk: Disk, path: str, suffix: str) -> list[tuple[SuffixedDir, str]]:
    """Return the directories named ``topic-partition.uniqueId`` and ``suffix``, with their paths."""
    out = []
    for name in disk.listdir(path):
        marked = parse_suffixed_dir(name) if name.endswith(suffix) else None
        if marked is not None and marked.suffix == suffix and disk.is_dir(f"{path}/{name}"):
            out.append((marked, f"{path}/{name}"))
    return out


def list_foreign_entries(disk: Disk, path: str) -> list[str]:
    """Return the paths of foreign entries: directories with other names, and partitions that are not directories.

    A symbolic link whose target is missing, or is a file, is no directory.
    """
    out = []
    for name in disk.listdir(path):
        is_kafka_name = bool(name == REMOTE_INDEX_CACHE_DIR or parse_partition_dir(name) or parse_suffixed_dir(name))
        if is_kafka_name != disk.is_dir(f"{path}/{name}"):
            out.append(f"{path}/{name}")
    return out


def contains_partition_files(disk: Disk, path: str) -> bool:
    """Return whether a directory has at least one file of a partition in it; False where it may not be read."""
    try:
        names = disk.list_files(path)
    except PermissionError:
        return False
    return PARTITION_METADATA_FILE in names or any(parse_segment_file(name) for name in names)


def delete_partition_dir(disk: Disk, path: str) -> None:
    """Remove the directory of a deleted partition.

    Its log files are removed first, as Kafka does: behind a symbolic link they go, and then the link alone.

    Raises:
        OSError: not everything was removed.
    """
    for name in disk.list_files(path):
        if parse_segment_file(name) is not None:
            disk.unlink(f"{path}/{name}")
    disk.rmtree(path)


def log_directory_error(path: str, error: OSError) -> OSError:
    """Return the error of a directory that cannot be created or locked as a sentence.

    A transient error (`is_transient`) is returned unchanged.
    """
    if is_transient(error):
        return error
    if isinstance(error, FileExistsError):
        return OSError(f"{path} is not a readable log directory (a file or a broken symbolic link lies there)")
    why = "part of its path is a file" if isinstance(error, NotADirectoryError) else error.strerror or error
    return OSError(f"Failed to create or lock data directory {path} ({why})")
