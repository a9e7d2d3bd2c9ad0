"""Page of the record batch that contains an offset: header and records as fields beside their bytes."""

from __future__ import annotations

from typing import Any

from ottla.console.frame_fields import FrameFieldList, build_hex_dump, describe_spans
from ottla.console.page import InvalidInput, PageRequest, View
from ottla.console.pages.topics import find_topic
from ottla.console.record_fields import record_field_spans
from ottla.console.record_scan import RecordCriteria, RecordScan, ScanRange, decompress_batch
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.errors import WireError
from ottla.wire.field_dump import batch_spans, describe_attributes
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.record_batch.compression import CompressionType, compression_type_of

OLD_FORMAT = "The batch is in a format older than 2, whose bytes are not shown."


def _describe_batch(raw: memoryview, header: BatchHeader) -> Job[list[dict[str, Any]]]:
    """Return the batch as values for the template, and its records uncompressed if they are compressed, as a job.

    Each has ``name``, ``size`` in bytes, ``fields``, ``rows`` (hex dump), and ``problem``, which is empty if all fields
    were decoded.
    """
    data = bytes(raw)
    spans = [(span, False) for span in batch_spans(data, hides_records=True)]
    parts: list[tuple[str, bytes, FrameFieldList]] = []
    if compression_type_of(header.attributes) is CompressionType.NONE:
        del spans[-1]
        records = (
            (span, False) for span in record_field_spans(data, HEADER_BYTES, len(data), header.records_count, "")
        )
        fields = yield from describe_spans(part for group in (spans, records) for part in group)
        parts.append(("Batch", data, fields))
    else:
        parts.append(("Batch", data, (yield from describe_spans(spans))))
        try:
            plain = (yield from decompress_batch(raw, header))[0][HEADER_BYTES:]
        except WireError as error:
            parts.append(("Uncompressed records", b"", FrameFieldList([], str(error))))
        else:
            found = ((span, False) for span in record_field_spans(plain, 0, len(plain), header.records_count, ""))
            parts.append(("Uncompressed records", plain, (yield from describe_spans(found))))
    out: list[dict[str, Any]] = []
    first = 0
    for name, shown, listed in parts:
        numbered = [field._replace(number=field.number + first) for field in listed.fields]
        rows = yield from build_hex_dump(shown, numbered)
        first += len(numbered)
        out.append({"name": name, "size": len(shown), "fields": numbered, "rows": rows, "problem": listed.problem})
    return out


async def _find_batch(page: PageRequest, topic: str, number: int, offset: int) -> tuple[memoryview, BatchHeader]:
    """Return the batch that contains an offset, or the first one behind it, and its header.

    Raises:
        InvalidInput: there is none, or the user is throttled. ProtocolError: the session is not authorized.
    """
    scan = RecordScan(page.node.local.env, page.client, topic, [], RecordCriteria())
    raw = await scan.fetch(ScanRange(number, offset, offset + 1))
    for position, header in legacy_records.iterate_any_batches(raw or b""):
        if header.next_offset > offset:
            return memoryview(raw)[position : position + header.size_bytes], header
    raise InvalidInput(f"{topic}-{number} has no batch at offset {offset}")


async def get_batch(page: PageRequest) -> View:
    """Return the page of the batch with the query's offset, or the next one; bytes and fields only of format 2.

    Raises:
        InvalidInput: a field is invalid, or there is no batch. ProtocolError: no such topic, or not authorized.
    """
    topic, number, offset = page.text("name"), page.number("partition", 0), page.number("offset", 0)
    await find_topic(page, topic)
    raw, header = await _find_batch(page, topic, number, offset)
    frames: list[dict[str, Any]] = []
    if header.magic >= 2:
        frames = await run_in_background(page.node.local.env, _describe_batch(raw, header))
    values = {
        "title": f"Batch at offset {header.base_offset} of {topic}-{number}",
        "topic": topic,
        "header": header,
        "attributes": describe_attributes(header.attributes),
        "problem": "" if frames else OLD_FORMAT,
        "frames": frames,
    }
    return View("batch.html", values)
