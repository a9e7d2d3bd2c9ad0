"""Page with a form that appends one record to a topic."""

from __future__ import annotations

from ottla.client.murmur2 import partition_for_key
from ottla.console.page import Change, InvalidInput, PageRequest, View, confirm_and_execute, split_entries
from ottla.console.pages.topics import find_topic
from ottla.console.record_text import format_bytes
from ottla.console.rendering import url
from ottla.wire.record_batch.records import NewRecord

MAX_HEADERS = 50


async def get_produce(page: PageRequest) -> View:
    """Return the page with the form for a new record of the topic in the field ``name``.

    Raises:
        ProtocolError: the topic does not exist, or the session may not describe it.
    """
    topic = await find_topic(page, page.text("name"))
    values = {"title": f"New record in {topic.name}", "topic": topic.name, "count": len(topic.partitions)}
    return View("produce.html", values)


def _parse_headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    """Return headers from lines of ``NAME=VALUE``; without an equals sign the value is null.

    Raises:
        InvalidInput: more than `MAX_HEADERS` headers.
    """
    out = []
    lines = split_entries(text, MAX_HEADERS, "headers")
    for line in lines:
        name, separator, value = line.partition("=")
        out.append((name.strip(), value.encode("utf-8", "replace") if separator else None))
    return tuple(out)


def _field(page: PageRequest, name: str) -> bytes | None:
    is_null = page.fields.get(f"{name}_null") == "1"
    return None if is_null else page.fields.get(name, "").encode("utf-8", "replace")


async def produce_record(page: PageRequest) -> View:
    """Append the record of the form to a partition, if the form is confirmed; else return the confirmation page.

    Without a partition in the form, the hash of the key selects it; a record without a key goes to the first one.

    Raises:
        InvalidInput: no such partition, or too many headers. ProtocolError: no such topic, or the record was refused.
    """
    topic = await find_topic(page, page.text("name"))
    name, numbers = topic.name or "", [p.partition_index for p in topic.partitions]
    key, value = _field(page, "key"), _field(page, "value")
    number = page.number("partition", -1, 0, 2**31 - 1)
    if number < 0:
        number = numbers[partition_for_key(key, len(numbers))] if key is not None else numbers[0]
    if number not in numbers:
        raise InvalidInput(f"partition: topic {name} has no partition {number}")
    record = NewRecord(key, value, page.node.local.env.now_ms(), _parse_headers(page.fields.get("headers", "")))

    async def execute() -> str:
        offset = await page.client.produce(name, number, [record])
        return f"The record has offset {offset} in {name}-{number}."

    consequences = [
        f"A record is appended to {name}-{number}; readers get it, and it cannot be taken back.",
        f"Key: {format_bytes(key)}",
        f"Value: {format_bytes(value)}",
        *(f"Header {header}: {format_bytes(raw)}" for header, raw in record.headers),
    ]
    back = url("/records", name=name)
    return await confirm_and_execute(
        page, Change(f"Append a record to {name}", consequences, "Append the record", execute, back)
    )
