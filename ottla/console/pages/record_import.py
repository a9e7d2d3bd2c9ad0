"""Page that appends records from JSON lines, in the format of the export."""

from __future__ import annotations

from functools import partial

from ottla.client.murmur2 import partition_for_key
from ottla.client.record_splitting import append_in_batches
from ottla.console.page import Change, InvalidInput, PageRequest, View, confirm_and_execute, split_entries
from ottla.console.pages.topics import find_topic
from ottla.console.rendering import format_count, url
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.tools.json_records import InvalidRecord, record_from_json
from ottla.wire.record_batch.records import NewRecord

MAX_RECORDS = 1_000
_MAX_LINE_CHARS = 1_000_000


async def get_import(page: PageRequest) -> View:
    """Return the page with the form for JSON lines with records of the topic in the field ``name``.

    Raises:
        ProtocolError: the topic does not exist, or the session may not describe it.
    """
    topic = await find_topic(page, page.text("name"))
    return View("record_import.html", {"title": f"Import records into {topic.name}", "topic": topic.name})


def _parse_records(lines: list[str], partitions: list[int], now_ms: int) -> Job[dict[int, list[NewRecord]]]:
    """Parse lines of JSON to records and return the records by partition, as a job.

    A line may name its partition. Without one, the hash of the record's key selects the partition; records without a
    key are spread over the partitions in turn.

    Raises:
        InvalidInput: a line is too long or not the JSON form of a record, or names a partition that does not exist.
    """
    out: dict[int, list[NewRecord]] = {}
    for number, line in enumerate(lines, 1):
        if len(line) > _MAX_LINE_CHARS:
            raise InvalidInput(f"line {number}: at most {_MAX_LINE_CHARS:,} characters")
        try:
            parsed = record_from_json(line.encode("utf-8", "replace"))
        except InvalidRecord as error:
            raise InvalidInput(f"line {number}: {error}") from None
        partition = parsed.partition
        if partition is None:
            count = len(partitions)
            chosen = number % count if parsed.key is None else partition_for_key(parsed.key, count)
            partition = partitions[chosen]
        if partition not in partitions:
            raise InvalidInput(f"line {number}: the topic has no partition {partition}")
        timestamp_ms = now_ms if parsed.timestamp_ms is None else parsed.timestamp_ms
        out.setdefault(partition, []).append(NewRecord(parsed.key, parsed.value, timestamp_ms, parsed.headers))
        yield None
    return out


async def import_records(page: PageRequest) -> View:
    """Append the records of the form's JSON lines, if the form is confirmed; else return the confirmation page.

    Raises:
        InvalidInput: a line is no record, or there are too many. ProtocolError: a batch was refused; earlier ones stay.
    """
    topic = await find_topic(page, page.text("name"))
    name, partitions = topic.name or "", [each.partition_index for each in topic.partitions]
    env = page.node.local.env
    lines = split_entries(page.text("lines"), MAX_RECORDS, "lines")
    records = await run_in_background(env, _parse_records(lines, partitions, env.now_ms()))

    async def execute() -> str:
        for partition, found in sorted(records.items()):
            await append_in_batches(found, partial(page.client.produce, name, partition))
        return f"{format_count(len(lines))} records were appended to {name}."

    consequences = [
        f"{format_count(len(found))} records are appended to {name}-{partition}."
        for partition, found in sorted(records.items())[:100]
    ]
    consequences.append("Readers get them, and they cannot be taken back. Topic and offset of a line are ignored.")
    change = Change(
        f"Import records into {name}", consequences, "Append the records", execute, url("/records", name=name)
    )
    return await confirm_and_execute(page, change)
