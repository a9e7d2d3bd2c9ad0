"""Names of Kafka's directories and files in a log directory.

Files and directories with other names are foreign: they are never removed, renamed or changed.

Source: ``LocalLog.parseTopicPartitionName``, ``LogFileUtils.java``, ``Snapshots.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

TopicPartition = tuple[str, int]

DELETE_DIR_SUFFIX = "-delete"
"""Suffix of the directory of a deleted partition."""
FUTURE_DIR_SUFFIX = "-future"
"""Suffix of the directory of a future log, the copy of a log that AlterReplicaLogDirs creates."""
STRAY_DIR_SUFFIX = "-stray"
"""Suffix of the directory of a partition that belongs to no topic of the cluster."""
REMOTE_INDEX_CACHE_DIR = "remote-log-index-cache"
"""Directory of Kafka's tiered storage (``RemoteIndexCache.DIR_NAME``)."""

DELETED_FILE_SUFFIX, CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX = ".deleted", ".cleaned", ".swap"
"""State suffixes of a segment's files: to be deleted; incomplete output of compaction; complete, to be swapped in."""
INDEX_SUFFIXES = (".index", ".timeindex", ".txnindex")

_MAX_INT = 2**31 - 1
_TOPIC_PARTITION = r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>0|[1-9][0-9]{0,9})"
_PARTITION_DIR = re.compile(_TOPIC_PARTITION, re.ASCII)
_SUFFIXED_DIR = re.compile(rf"{_TOPIC_PARTITION}\.[0-9a-f]{{32}}(?P<suffix>-delete|-future|-stray)", re.ASCII)
_SEGMENT_FILE = re.compile(
    r"(?P<base>[0-9]{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<state>|\.deleted|\.cleaned|\.swap)(?P<tmp>|\.tmp)",
    re.ASCII,
)
_TEMPORARY_FILES = frozenset({"leader-epoch-checkpoint.tmp", "partition.metadata.tmp", "quorum-state.tmp"})
_UNFINISHED_SNAPSHOT = re.compile(r"[0-9]{20}-[0-9]{10}(?:-[0-9]+)?\.checkpoint\.(?:part|deleted)", re.ASCII)


class SuffixedDir(NamedTuple):
    """Parsed name of a directory ``topic-partition.uniqueId-delete``, ``-future`` or ``-stray``."""

    topic: str
    """The topic's name; of a deleted or stray partition it may be cut so that the whole name has 255 characters."""
    partition: int
    suffix: str
    """`DELETE_DIR_SUFFIX`, `FUTURE_DIR_SUFFIX` or `STRAY_DIR_SUFFIX`."""


class SegmentFile(NamedTuple):
    """Parsed name of a segment's file, such as ``00000000000000000042.index.swap``: base offset, kind, state suffix."""

    base_offset: int
    kind: str
    """``.log``, ``.index``, ``.timeindex``, ``.txnindex`` or ``.snapshot``."""
    state: str
    """`DELETED_FILE_SUFFIX`, `CLEANED_FILE_SUFFIX` or `SWAP_FILE_SUFFIX`; empty for a file that is in use."""


def parse_partition_dir(name: str) -> TopicPartition | None:
    """Return the topic and partition of a directory named ``topic-partition``; None for any other name."""
    match = _PARTITION_DIR.fullmatch(name)
    if match is None or int(match["partition"]) > _MAX_INT:
        return None
    return match["topic"], int(match["partition"])


def parse_suffixed_dir(name: str) -> SuffixedDir | None:
    """Return the topic, partition and suffix of a name ``topic-partition.uniqueId-suffix``; None for any other name.

    The unique id must have 32 hexadecimal digits, as Kafka writes it; Kafka's pattern accepts any text without blanks.
    """
    match = _SUFFIXED_DIR.fullmatch(name)
    if match is None or int(match["partition"]) > _MAX_INT:
        return None
    return SuffixedDir(match["topic"], int(match["partition"]), match["suffix"])


def parse_segment_file(name: str) -> SegmentFile | None:
    """Return the base offset, kind and state of a segment file's name; None for others, also ``.tmp`` files."""
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or match["tmp"]:
        return None
    return SegmentFile(int(match["base"]), match["kind"], match["state"])


def base_offsets_of(names: Iterable[str], kind: str, state: str = "") -> list[int]:
    """Return, ascending, the base offsets of the segment files among ``names`` that have this kind and state suffix."""
    files = (parse_segment_file(name) for name in names if name.endswith(kind + state))
    return sorted(file.base_offset for file in files if file is not None and (file.kind, file.state) == (kind, state))


def is_log_file(name: str) -> bool:
    """Return True for the name of a segment's ``.log`` file without a further suffix such as ``.deleted``."""
    return name.endswith(".log") and parse_segment_file(name) is not None


def is_temporary_file(name: str) -> bool:
    """Return True for the ``.tmp`` name of a file in a partition directory that is written before its rename."""
    if not name.endswith(".tmp"):
        return False
    return name in _TEMPORARY_FILES or _SEGMENT_FILE.fullmatch(name) is not None


def is_unfinished_snapshot(name: str) -> bool:
    """Return True for the name of a metadata snapshot that is incomplete (``.part``) or marked for deletion."""
    return _UNFINISHED_SNAPSHOT.fullmatch(name) is not None
