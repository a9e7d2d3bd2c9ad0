"""Pages of a topic's records: search from an offset, a time or the end; a single record; export; live updates."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from http import HTTPStatus
from typing import Any

from ottla.broker.config.limits import MAX_CONSOLE_SCAN_BYTES, MAX_CONSOLE_SCAN_MS
from ottla.broker.network.http.http_messages import HttpResponse
from ottla.console.offsets import EARLIEST, LATEST, list_offsets
from ottla.console.page import InvalidInput, PageRequest, View, audit, logger
from ottla.console.pages.topics import find_topic
from ottla.console.record_scan import MatchingRecord, RecordCriteria, RecordScan, ScanRange
from ottla.console.record_tail import MAX_NEWEST, newest_per_partition
from ottla.console.record_text import (
    LONG_CHARS,
    SHORT_CHARS,
    format_bytes,
    format_decoded,
    format_hex,
    format_json,
    format_raw,
)
from ottla.console.rendering import url
from ottla.console.schemas.schema_store import KEY, VALUE, TopicSchemas
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.tools.json_records import record_to_json
from ottla.wire.errors import ProtocolError, WireError

MAX_SHOWN = 200
DEFAULT_SHOWN = 50
STARTS = ("newest", "start", "offset", "time")
_CRITERIA_FIELDS = ("key", "contains", "header", "path", "equals", "undecodable")
_MAX_HEADERS = 20
_HEADER_CHARS = 1000
_EXPORT_STEP = 200
_PIECE_CHARS = 64 * 1024


def parse_criteria(page: PageRequest) -> RecordCriteria:
    """Return the filter of the query: key, value, ``NAME`` or ``NAME=TEXT`` of a header, path in a JSON value."""
    name, _, header_value = page.fields.get("header", "").strip().partition("=")
    path = page.fields.get("path", "").strip().lstrip("$").strip(".")
    return RecordCriteria(
        page.fields.get("key", "").encode("utf-8", "replace"),
        page.fields.get("contains", "").encode("utf-8", "replace"),
        name.strip(),
        header_value.strip().encode("utf-8", "replace"),
        tuple(path.split(".")) if path else (),
        page.fields.get("equals", ""),
    )


async def find_ranges(page: PageRequest, topic: str, limit: int) -> list[ScanRange]:
    """Return the offset range to scan of each partition that the query selects; those without a leader are left out.

    ``limit``: most records for each partition if the query starts at the newest ones.

    Raises:
        InvalidInput: the partition or the start is invalid.
    """
    numbers = [row.partition_index for row in (await find_topic(page, topic)).partitions]
    chosen = page.number("partition", -1, 0, 2**31 - 1)
    partitions = [(topic, number) for number in numbers if chosen in (-1, number)]
    if not partitions:
        raise InvalidInput(f"partition: topic {topic} has no partition {chosen}")
    first = await list_offsets(page.client, partitions, EARLIEST)
    last = await list_offsets(page.client, partitions, LATEST)
    start = page.fields.get("from", "newest") or "newest"
    if start == "newest":
        each = newest_per_partition(limit, len(partitions))
        begin = {at: offset - each for at, offset in last.items()}
    elif start == "start":
        begin = first
    elif start == "offset":
        begin = dict.fromkeys(partitions, page.number("at", 0))
    elif start == "time":
        found = await list_offsets(page.client, partitions, page.number("at", 0))
        begin = {at: last[at] if offset < 0 else offset for at, offset in found.items() if at in last}
    else:
        raise InvalidInput(f"from: one of {', '.join(STARTS)} is expected")
    return [
        ScanRange(at[1], max(begin[at], first[at]), last[at])
        for at in partitions
        if at in first and at in last and at in begin
    ]


def _skip_to_cursor(page: PageRequest, ranges: list[ScanRange]) -> list[ScanRange]:
    """Return the ranges from the query's ``next_partition`` and ``next_offset`` on, or all without these fields.

    Raises:
        InvalidInput: one of them is not a number.
    """
    number, position = page.number("next_partition", -1, 0, 2**31 - 1), page.number("next_offset", 0)
    if number < 0:
        return ranges
    out = [each for each in ranges if each.partition >= number]
    if out and out[0].partition == number:
        out[0] = out[0]._replace(position=max(out[0].position, position))
    return out


def describe_record(topic: str, match: MatchingRecord, schemas: TopicSchemas) -> Job[dict[str, Any]]:
    """Return a record's row in a list of records: position, timestamp, and shortened texts of its fields, as a job.

    Keys: ``partition``, ``offset``, ``timestamp`` (ms since 1970), ``key``, ``value``, ``key_note`` and ``value_note``
    (as `_describe_part`), ``headers`` (texts), ``is_transactional``, and ``address`` (URL of the record's page).
    """
    record = match.record
    headers = [f"{name}: {format_bytes(value, 100)}" for name, value in record.headers[:_MAX_HEADERS]]
    if len(record.headers) > _MAX_HEADERS:
        headers.append(f"{len(record.headers) - _MAX_HEADERS} more")
    key, key_note = yield from _describe_part(schemas, KEY, record.key, 200)
    value, value_note = yield from _describe_part(schemas, VALUE, record.value, SHORT_CHARS)
    return {
        "partition": match.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": key,
        "key_note": key_note,
        "value": value,
        "value_note": value_note,
        "headers": headers,
        "is_transactional": match.is_transactional,
        "address": url("/record", name=topic, partition=match.partition, offset=record.offset),
    }


def _describe_part(schemas: TopicSchemas, part: str, raw: bytes | None, limit: int) -> Job[tuple[str, str]]:
    """Return the text of a key or value, and a note, as a job.

    The note is the name of its schema, or the reason why the schema does not describe it; empty without a schema.
    """
    decoded = yield from schemas.decode(part, raw)
    if decoded is None or raw is None:
        return format_bytes(raw, limit), ""
    if decoded.problem:
        return format_raw(raw, limit), f"{decoded.schema}: {decoded.problem}"
    return (yield from format_decoded(decoded.value, limit)), decoded.schema


def _describe_records(topic: str, found: list[MatchingRecord], schemas: TopicSchemas) -> Job[list[dict[str, Any]]]:
    rows = []
    for each in found:
        rows.append((yield from describe_record(topic, each, schemas)))
        yield None
    return rows


async def describe_records(page: PageRequest, topic: str, matches: list[MatchingRecord]) -> list[dict[str, Any]]:
    """Return the rows of records in a list of records, each as `describe_record`, with their schemas."""
    schemas = await _load_schemas(page, topic, matches)
    return await run_in_background(page.node.local.env, _describe_records(topic, matches, schemas))


async def _load_schemas(page: PageRequest, topic: str, found: list[MatchingRecord]) -> TopicSchemas:
    """Return the schemas for the keys and values of records; those that are not cached are loaded."""
    raw = [part for each in found for part in (each.record.key, each.record.value)]
    return await page.node.schemas.load(topic, raw)


async def _scan(page: PageRequest, topic: str, limit: int) -> tuple[RecordScan, list[dict[str, Any]]]:
    ranges = _skip_to_cursor(page, await find_ranges(page, topic, limit))
    is_newest = page.fields.get("from", "newest") == "newest"
    scan = RecordScan(page.node.local.env, page.client, topic, ranges, parse_criteria(page))
    most = MAX_NEWEST + len(ranges) if is_newest else limit
    found = await find_records(page, topic, scan, most)
    if is_newest:
        found = sorted(found, key=lambda each: each.record.timestamp_ms)[-limit:]
        found.reverse()
    return scan, await describe_records(page, topic, found)


async def find_records(page: PageRequest, topic: str, scan: RecordScan, limit: int) -> list[MatchingRecord]:
    """Continue a scan as `RecordScan.find`; with ``undecodable=1`` keep the records that no schema describes.

    Raises:
        ProtocolError, OSError, WireError: as `RecordScan.find`.
    """
    only_undecodable = page.fields.get("undecodable") == "1"
    return await (_find_undecodable(page, topic, scan, limit) if only_undecodable else scan.find(limit))


async def _find_undecodable(page: PageRequest, topic: str, scan: RecordScan, limit: int) -> list[MatchingRecord]:
    """Continue a scan until it has ended, about ``limit`` records were found, or a limit of bytes or time is reached.

    Returns:
        The records with a key or value that its schema does not describe.
    """
    env, kept, kept_bytes = page.node.local.env, list[MatchingRecord](), 0
    started_ms = env.monotonic_ms()
    while scan.ranges and len(kept) < limit and kept_bytes < MAX_CONSOLE_SCAN_BYTES:
        if env.monotonic_ms() - started_ms > MAX_CONSOLE_SCAN_MS:
            break
        selected = await _keep_selected(page, topic, await scan.find(_EXPORT_STEP))
        kept_bytes += sum(len(each.record.key or b"") + len(each.record.value or b"") for each in selected)
        kept += selected
    return kept


async def _keep_selected(page: PageRequest, topic: str, found: list[MatchingRecord]) -> list[MatchingRecord]:
    """Return the records, or with ``undecodable=1`` those with a key or value that its schema does not describe."""
    if page.fields.get("undecodable") != "1":
        return found
    schemas = await _load_schemas(page, topic, found)
    return await run_in_background(page.node.local.env, _select_undecodable(schemas, found))


def _select_undecodable(schemas: TopicSchemas, found: list[MatchingRecord]) -> Job[list[MatchingRecord]]:
    out = []
    for each in found:
        key = yield from schemas.decode(KEY, each.record.key)
        value = yield from schemas.decode(VALUE, each.record.value)
        if any(decoded is not None and decoded.problem for decoded in (key, value)):
            out.append(each)
        yield None
    return out


async def get_record_list(page: PageRequest) -> View:
    """Return the values of the page's live block: the records that match the query, and a link to the next ones."""
    topic, limit = page.text("name"), page.number("limit", DEFAULT_SHOWN, 1, MAX_SHOWN)
    scan, rows = await _scan(page, topic, limit)
    values = {"rows": rows, "scanned": scan.scanned, "skipped": 0, "opened_ms": 0}
    return View("records.html", {**values, "problems": scan.problems[:20], "following": link_to_rest(page, scan)})


def link_to_rest(page: PageRequest, scan: RecordScan) -> str:
    """Return the URL of the query from where a scan has paused; empty if all offsets of the query were scanned."""
    if not scan.ranges:
        return ""
    fields = {name: value for name, value in page.fields.items() if not name.startswith("next_")}
    rest = scan.ranges[0]
    return url("/records", **{**fields, "next_partition": rest.partition, "next_offset": rest.position})


async def get_records(page: PageRequest) -> View:
    """Return the page with the form of the query, and the matching records."""
    view = await get_record_list(page)
    fields = {name: page.fields.get(name, "") for name in ("partition", "from", "at", *_CRITERIA_FIELDS)}
    fields["from"] = fields["from"] or "newest"
    limit = page.number("limit", DEFAULT_SHOWN, 1, MAX_SHOWN)
    topic = page.text("name")
    query = {name: value for name, value in page.fields.items() if not name.startswith("next_")}
    values = {"title": f"Records of {topic}", "topic": topic, "fields": fields, "limit": limit, **view.values}
    is_live = fields["from"] == "newest" and "next_partition" not in page.fields
    return View("records.html", {**values, "is_live": is_live, "export": url("/records/export", **query)})


async def get_record(page: PageRequest) -> View:
    """Return the page of a single record with its value in all formats; InvalidInput if it cannot be found or read."""
    topic, number, offset = page.text("name"), page.number("partition", 0), page.number("offset", 0)
    await find_topic(page, topic)
    part = ScanRange(number, offset, offset + 1)
    scan = RecordScan(page.node.local.env, page.client, topic, [part], RecordCriteria())
    found = await scan.find(1)
    if not found:
        raise InvalidInput(" ".join(scan.problems) or f"{topic}-{number} has no record at offset {offset}")
    record = found[0].record
    schemas = await _load_schemas(page, topic, found)
    parts = [
        await run_in_background(page.node.local.env, _describe_whole_part(schemas, name, raw))
        for name, raw in ((KEY, record.key), (VALUE, record.value))
    ]
    values = {
        "title": f"Record {offset} of {topic}-{number}",
        "topic": topic,
        "partition": number,
        "offset": offset,
        "timestamp": record.timestamp_ms,
        "is_transactional": found[0].is_transactional,
        "headers": [(name, format_bytes(value, _HEADER_CHARS)) for name, value in record.headers[:100]],
        "parts": parts,
    }
    return View("record.html", values)


def _describe_whole_part(schemas: TopicSchemas, part: str, raw: bytes | None) -> Job[dict[str, Any]]:
    """Return the values of a key or value for the page of its record, as a job: text and hex dump.

    Keys: ``name``, ``size`` in bytes (None for null), ``hex``, ``text``, ``schema`` (name, empty without one) and
    ``problem`` (why the schema does not describe the value, or empty). The text is the value decoded by its schema;
    without a schema, indented JSON or the bytes as text; with a problem, the hex dump.
    """
    out = {"name": part.capitalize(), "size": None if raw is None else len(raw), "hex": format_hex(raw)}
    decoded = yield from schemas.decode(part, raw)
    schema, problem = ("", "") if decoded is None else (decoded.schema, decoded.problem)
    if decoded is None:
        text = format_json(raw) or format_bytes(raw, LONG_CHARS)
    elif problem:
        text = format_hex(raw)
    else:
        text = yield from format_decoded(decoded.value, LONG_CHARS, 2)
    return {**out, "text": text, "schema": schema, "problem": problem}


async def export_records(page: PageRequest) -> HttpResponse:
    """Return the records that match the query as a file of JSON lines, which are read while it is sent; log the export.

    Raises:
        InvalidInput: a field is invalid, or the first records cannot be decoded. ProtocolError: no such topic, or the
            session is not authorized.
    """
    topic = page.text("name")
    ranges = await find_ranges(page, topic, page.number("limit", DEFAULT_SHOWN, 1, MAX_SHOWN))
    scan = RecordScan(page.node.local.env, page.client, topic, ranges, parse_criteria(page))
    first = await scan.find(_EXPORT_STEP)
    if scan.problems and not first:
        raise InvalidInput(scan.problems[0])
    audit(page, f"Export records of topic {topic}", "started")
    name = "".join(char if char.isalnum() or char in "._-" else "_" for char in topic)
    headers = (("Content-Disposition", f'attachment; filename="{name}.jsonl"'),)
    return HttpResponse(HTTPStatus.OK, _export(page, topic, scan, first), "application/x-ndjson", headers)


def encode_json_records(topic: str, matches: list[MatchingRecord]) -> Job[list[bytes]]:
    """Return the lines of records in pieces, as a job that yields after each: a record may have megabytes."""
    out = []
    for each in matches:
        row = record_to_json(topic, each.partition, each.record)
        yield None
        separator = "{"
        for name, value in row.items():
            out.append(f"{separator}{json.dumps(name)}: ".encode())
            separator = ", "
            if isinstance(value, str):
                for start in range(0, max(len(value), 1), _PIECE_CHARS):
                    piece = json.dumps(value[start : start + _PIECE_CHARS], ensure_ascii=False)[1:-1]
                    opening = '"' if start == 0 else ""
                    out.append(f"{opening}{piece}".encode("utf-8", "replace"))
                    yield None
                out.append(b'"')
            else:
                out.append(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        out.append(b"}\n")
        yield None
    return out


def _group_records(found: list[MatchingRecord]) -> Iterator[list[MatchingRecord]]:
    """Yield records in groups of about `_PIECE_CHARS` bytes: only one group is encoded at a time."""
    group: list[MatchingRecord] = []
    size = 0
    for each in found:
        group.append(each)
        size += len(each.record.key or b"") + len(each.record.value or b"")
        if size >= _PIECE_CHARS:
            yield group
            group, size = [], 0
    if group:
        yield group


def _join_pieces(pieces: list[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces of about `_PIECE_CHARS` bytes."""
    joined: list[bytes] = []
    size = 0
    for piece in pieces:
        joined.append(piece)
        size += len(piece)
        if size >= _PIECE_CHARS:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)


async def _export(
    page: PageRequest, topic: str, scan: RecordScan, found: list[MatchingRecord]
) -> AsyncGenerator[bytes, None]:
    """Yield the lines of the records in pieces; other tasks run in between.

    Raises:
        OSError: a record cannot be read; the client notices that the response is not complete.
    """
    env = page.node.local.env
    while True:
        for group in _group_records(await _keep_selected(page, topic, found)):
            for piece in _join_pieces(await run_in_background(env, encode_json_records(topic, group))):
                yield piece
                await env.sleep(0)
        if scan.problems:
            logger.warning("Export of topic %s ended: %s", topic, scan.problems[0])
            raise OSError(scan.problems[0])
        if not scan.ranges:
            return
        try:
            found = await scan.find(_EXPORT_STEP)
        except (ProtocolError, WireError) as error:
            raise OSError(str(error)) from error
