"""How far the logs of a directory are compacted, written under another name first: nothing is torn, and nobody waits.

A thread writes it; then it takes the file's place, unless that says something newer by now.

Source: ``LogCleanerManager.updateCheckpoints``, ``CheckpointFile.write`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.log.checkpoints.checkpoint_files import CLEANER_OFFSET_CHECKPOINT, write_offsets
from ottla.log.directory.log_directory import LogDirectory
from ottla.log.file_names import TopicPartition


def _path(directory: LogDirectory) -> str:
    return f"{directory.path}/{CLEANER_OFFSET_CHECKPOINT}.new"


def write_temporary_file(directory: LogDirectory, points: Mapping[TopicPartition, int]) -> None:
    """Write the file under another name, and wait until the disk has it: for a thread.

    Raises:
        OSError: final, unless the process is only short of something.
    """
    write_offsets(directory.disk, _path(directory), dict(sorted(points.items())), sync_dir=False)


def replace_checkpoint(
    directory: LogDirectory, points: Mapping[TopicPartition, int], instead_of: Mapping[TopicPartition, int]
) -> bool:
    """What was written aside takes the file's place: one renaming; says whether it did.

    Not where it is older than what the file says, nor where it says too much of a log that was cut since, or went.

    Raises:
        OSError: it did not.
    """
    now = directory.cleaner_offsets()
    is_older = directory.written_cleaner_offsets is not instead_of
    if is_older or any(now.get(at, 0) < point for at, point in points.items()):
        return False
    directory.disk.rename(_path(directory), f"{directory.path}/{CLEANER_OFFSET_CHECKPOINT}")
    directory.written_cleaner_offsets, directory.are_cleaner_offsets_synced = points, False
    return True


def on_checkpoint_synced(directory: LogDirectory, points: Mapping[TopicPartition, int]) -> None:
    """The directory was synced since; that counts unless somebody wrote the file meanwhile."""
    if directory.written_cleaner_offsets is points:
        directory.are_cleaner_offsets_synced = True
