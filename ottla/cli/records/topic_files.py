"""Export of a topic to a file of JSON lines, and import from such a file (``ottla topic export``, ``import``)."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from typing import IO

from ottla.cli.common import print_output, require_topic
from ottla.cli.errors import CommandFailed, raise_for_topic
from ottla.cli.records.record_input import produce_records
from ottla.cli.records.topic_reader import TopicReader
from ottla.cli.terminal import write_bytes
from ottla.client.cluster_client import ClusterClient
from ottla.tools.json_records import InvalidRecord, record_from_json
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

STANDARD = "-"


class _Progress:
    """Counter of records on standard error, updated in place; its methods print only to a terminal."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()

    def show(self, count: int) -> None:
        """Print ``count`` records over the previous number."""
        if self._is_shown:
            sys.stderr.write(f"\r{count} records")
            sys.stderr.flush()

    def finish(self) -> None:
        """Print the line end after the counter, also if there is none yet."""
        if self._is_shown:
            sys.stderr.write("\n")


def _open(path: str, mode: str) -> IO[bytes]:
    """Open the file at ``path`` in binary ``mode``; the caller closes it.

    Raises:
        CommandFailed: the file cannot be opened.
    """
    try:
        return open(path, mode)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from None


async def export_topic(client: ClusterClient, options: argparse.Namespace) -> None:
    """Write the committed records of a topic, up to its present end, to a file or standard output as JSON lines.

    The records are written to ``FILE.part``, which is renamed to ``FILE`` at the end. After an error an existing file
    is unchanged, and ``FILE.part`` is removed.

    Raises:
        CommandFailed: the topic does not exist, or ``FILE.part`` cannot be written.
        ProtocolError: a leader refused a request.
        OSError: a leader cannot be reached, or ``FILE.part`` cannot be renamed.
    """
    numbers = sorted(p.partition_index for p in (await require_topic(client, options.topic)).partitions)
    if options.file == STANDARD:
        reader = _reader(client, options.topic, numbers, write_bytes)
        await reader.print_from(await reader.starts(), await reader.ends())
        return
    part = f"{options.file}.part"
    progress = _Progress()
    try:
        with _open(part, "wb") as file:

            def write(data: bytes) -> None:
                try:
                    file.write(data)
                    file.flush()
                except OSError as error:  # error of the output file, not of a broker
                    raise CommandFailed(f"{part}: {error.strerror}") from None
                progress.show(reader.printed)

            reader = _reader(client, options.topic, numbers, write)
            await reader.print_from(await reader.starts(), await reader.ends())
        os.replace(part, options.file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    progress.finish()
    print_output([{"topic": options.topic, "file": options.file, "records": reader.printed}], options.output)


def _reader(client: ClusterClient, topic: str, numbers: list[int], write: Callable[[bytes], None]) -> TopicReader:
    unset = dict.fromkeys(("format", "offset", "from_time", "until", "max_messages"))
    given = argparse.Namespace(
        **unset, topic=topic, output="json", filter=[], from_beginning=True, exit=True, isolation="read_committed"
    )
    return TopicReader(client, given, numbers, write)


def _highest_partition(path: str) -> int:
    """Return the highest partition number in a file of JSON records; -1 for an empty file.

    A record without a partition counts as one of partition 0.

    Raises:
        CommandFailed: the file cannot be opened, or a line is not a record; OSError: it cannot be read.
    """
    highest = -1
    with _open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                highest = max(highest, record_from_json(line).partition or 0)
            except InvalidRecord as error:
                raise CommandFailed(f"{path}: line {number}: {error}") from None
    return highest


async def _ensure_topic(client: ClusterClient, options: argparse.Namespace) -> None:
    """Create the topic if it does not exist, and wait until it has leaders; do nothing if it exists.

    It gets ``--partitions`` partitions, or as many as the file needs.

    Raises:
        CommandFailed: the topic is absent and its number of partitions unknown, the file cannot be opened or has an
            invalid line, the topic cannot be created, or Metadata has another error of it.
        ProtocolError: the new topic has no leaders for a second.
    """
    row = (await client.metadata([options.topic])).topics[0]
    if row.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise_for_topic(row.error_code, None, options.topic)
        return
    if options.partitions is None and options.file == STANDARD:
        raise CommandFailed(f"topic {options.topic} does not exist: --partitions N creates it")
    count = options.partitions or max(1, _highest_partition(options.file) + 1)
    topic = (await client.call(CreateTopicsRequest([CreatableTopic(options.topic, count, -1)], 30_000))).topics[0]
    raise_for_topic(topic.error_code, topic.error_message, options.topic)
    await client.partitions(options.topic, create=True)


async def import_topic(client: ClusterClient, options: argparse.Namespace) -> None:
    """Append the records of a file of JSON lines to a topic, which is created if it does not exist.

    A record goes to the partition that its line names, else as in ``ottla produce``. The records before an invalid
    line stay appended.

    Raises:
        CommandFailed: the file cannot be read, the topic cannot be created, a line is not a record, the topic has no
            such partition, or a batch was refused.
    """
    if options.file != STANDARD:
        _open(options.file, "rb").close()  # before the topic is created
    await _ensure_topic(client, options)
    progress = _Progress()
    given = argparse.Namespace(
        topic=options.topic,
        partition=None,
        codec="none",
        no_idempotence=False,
        header=[],
        key_separator=None,
        null_marker=None,
        input="json",
    )
    if options.file == STANDARD:
        stream = None if sys.stdin is None else getattr(sys.stdin, "buffer", sys.stdin)
        sent = await produce_records(client, given, stream)
    else:
        with _open(options.file, "rb") as file:
            sent = await produce_records(client, given, file, progress.show)
    progress.finish()
    print_output([{"topic": options.topic, "sent": sent}], options.output)
