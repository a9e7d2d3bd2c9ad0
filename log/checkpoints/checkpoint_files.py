"""Readers and writers of the checkpoint and metadata files of a log directory (text), in exactly Kafka's format.

Sources: ``CheckpointFile.java``, ``OffsetCheckpointFile.java``, ``LeaderEpochCheckpointFile.java``,
``PartitionMetadataFile.java``, ``CleanShutdownFileHandler.java``, ``PropertiesUtils.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from ottla.env.disk import Disk, read_file, write_file
from ottla.log import java_properties
from ottla.wire.codec.primitives import uuid_from_string, uuid_to_string

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

TopicPartition = tuple[str, int]


class CorruptFile(Exception):
    """File of a log directory, or a remote index, is corrupt or malformed; the message has its path and the reason."""


def _read_entries(disk: Disk, path: str) -> list[str]:
    """Return the entry lines of a checkpoint file (after version 0 and count); empty if it is missing or empty.

    Raises CorruptFile if the file is malformed or incomplete.
    """
    return _parse_entries(read_file(disk, path), path) if disk.exists(path) else []


def _parse_entries(raw: bytes, path: str) -> list[str]:
    text = raw.decode("utf-8", "replace")
    if not text.strip():
        return []
    lines = text.split("\n")
    if lines.pop():
        # a power failure may cut the last number short
        raise CorruptFile(f"Malformed checkpoint file {path}: incomplete last line")
    try:
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError):
        raise CorruptFile(f"Malformed checkpoint file {path}: no header") from None
    entries = [line for line in lines[2:] if line]
    if version != 0 or count != len(entries):
        raise CorruptFile(
            f"Malformed checkpoint file {path}: version {version}, expected {count} entries, found {len(entries)}"
        )
    return entries


def write_entries(
    disk: Disk, path: str, entries: list[str], *, sync: bool, sync_dir: bool | None = None, keep: str | None = None
) -> None:
    """Replace a checkpoint file atomically by version 0, the number of entries and ``entries``, one a line.

    The other arguments are those of `ottla.env.disk.write_file`: ``sync`` the file, ``sync_dir`` its rename, ``keep``
    the old file under this path.

    Raises:
        OSError: the file has its previous or the new contents; with ``keep`` it may be missing.
    """
    text = "".join(f"{line}\n" for line in ["0", str(len(entries)), *entries])
    write_file(disk, path, text.encode(), sync=sync, sync_dir=sync_dir, keep=keep)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Return the offsets in a checkpoint file of ``topic partition offset`` lines; none if it is missing or empty.

    Raises:
        CorruptFile: the file is malformed; the range of the numbers is not checked.
    """
    out = {}
    for line in _read_entries(disk, path):
        try:
            topic, partition, offset = line.split(" ")
            out[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFile(f"Malformed line in checkpoint file {path}: {line!r}") from None
    return out


def write_offsets(
    disk: Disk, path: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True, sync_dir: bool | None = None
) -> None:
    """Replace a checkpoint file atomically by ``topic partition offset`` lines; other arguments as `write_file`.

    Raises:
        OSError: the file has its previous or the new contents.
    """
    write_entries(disk, path, [f"{t} {p} {o}" for (t, p), o in offsets.items()], sync=sync, sync_dir=sync_dir)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs of a leader epoch checkpoint; empty if it is missing.

    Raises:
        CorruptFile: the file is malformed.
    """
    return _parse_epoch_lines(_read_entries(disk, path), path)


def parse_epochs(raw: bytes, path: str) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs of a leader epoch checkpoint; ``path`` is its name in the message.

    There are none in an empty file. Neither their order nor their values are checked.

    Raises:
        CorruptFile: the contents are malformed, or the number of lines is not that in the header.
    """
    return _parse_epoch_lines(_parse_entries(raw, path), path)


def _parse_epoch_lines(lines: list[str], path: str) -> list[tuple[int, int]]:
    out = []
    for line in lines:
        try:
            epoch, start = line.split(" ")
            out.append((int(epoch), int(start)))
        except ValueError:
            raise CorruptFile(f"Malformed line in checkpoint file {path}: {line!r}") from None
    return out


def write_epochs(disk: Disk, path: str, epochs: Iterable[tuple[int, int]], *, sync: bool) -> None:
    """Replace a leader epoch checkpoint atomically by ``epoch start_offset`` lines; ``sync`` makes it durable."""
    write_entries(disk, path, [f"{epoch} {start}" for epoch, start in epochs], sync=sync)


def read_partition_metadata(disk: Disk, directory: str) -> bytes | None:
    """Return the topic id (16 bytes) in ``partition.metadata`` of a partition directory; None if the file is missing.

    Raises:
        CorruptFile: the file is malformed.
    """
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if not disk.exists(path):
        return None
    text = read_file(disk, path).decode("utf-8", "replace")
    fields = dict(line.split(": ", 1) for line in text.split("\n") if ": " in line)
    try:
        if fields["version"] != "0":
            raise CorruptFile(f"{path}: version {fields['version']}")
        return uuid_from_string(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptFile(f"{path}: {error}") from None


def write_partition_metadata(disk: Disk, directory: str, topic_id: bytes, *, sync: bool) -> None:
    """Write ``partition.metadata`` with the topic id into a partition directory; ``sync``: wait until it is durable."""
    text = f"version: 0\ntopic_id: {uuid_to_string(topic_id)}"
    write_file(disk, f"{directory}/{PARTITION_METADATA_FILE}", text.encode(), sync=sync)


def read_properties(disk: Disk, path: str) -> dict[str, str]:
    """Return the properties of a Java properties file, which must exist.

    Raises:
        CorruptFile: a malformed Unicode escape, which Java rejects too.
    """
    try:
        return java_properties.loads(read_file(disk, path))
    except java_properties.MalformedProperties as error:
        raise CorruptFile(f"{path}: {error}") from None


def write_properties(disk: Disk, path: str, values: Mapping[str, str], now_ms: int) -> None:
    """Replace a Java properties file, with a date comment as Java writes it, and sync it. ``now_ms``: wall clock."""
    date = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    write_file(disk, path, f"#\n#{date}\n{java_properties.dumps(values)}".encode())


def read_clean_shutdown_file(disk: Disk, directory: str) -> int | None:
    """Return the broker epoch in the clean shutdown file; -1 if it has none or is malformed, None if it is missing."""
    path = f"{directory}/{CLEAN_SHUTDOWN_FILE}"
    if not disk.exists(path):
        return None
    try:
        return int(json.loads(read_file(disk, path)).get("brokerEpoch", -1))
    except (ValueError, AttributeError, TypeError, OverflowError, RecursionError):
        return -1


def remove_clean_shutdown_file(disk: Disk, directory: str) -> None:
    """Remove the clean shutdown file and sync the directory, before logs are changed.

    Raises:
        OSError: the file does not exist (FileNotFoundError), or the disk failed.
    """
    disk.unlink(f"{directory}/{CLEAN_SHUTDOWN_FILE}")
    disk.fsync_dir(directory)


def write_clean_shutdown_file(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write and sync the clean shutdown file of a log directory, so that the next start recovers no logs there."""
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_file(disk, f"{directory}/{CLEAN_SHUTDOWN_FILE}", text.encode())
