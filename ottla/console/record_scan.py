"""Scan of a topic for matching records, in steps and with limits.

A scan reads each partition from a start offset to the end offset at the start of the scan. It pauses at a number of
matches, or at the limit of bytes or time for one request; its ranges then have the offsets at which to continue. It
reads uncommitted: records of open and aborted transactions are matched too, control records are not.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

from ottla.broker.config.limits import (
    MAX_CONSOLE_BATCH_BYTES,
    MAX_CONSOLE_SCAN_BYTES,
    MAX_CONSOLE_SCAN_MS,
)
from ottla.console.in_process import LEADER_ONLY_FETCH_VERSION, SessionClient
from ottla.console.page import check
from ottla.env.env import Env
from ottla.jobs.job import Job
from ottla.jobs.time_slice import run_in_background
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import WireError
from ottla.wire.messages import fetch
from ottla.wire.record_batch import legacy_records
from ottla.wire.record_batch.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader
from ottla.wire.record_batch.compression import CompressionType, StreamDecompressor, compression_type_of
from ottla.wire.record_batch.records import PIECE_BYTES, Record, iterate_records

_FIRST_FETCH_BYTES, _FETCH_BYTES = 64 * 1024, 1024 * 1024
"""Bytes of the first fetch of a scan, and of the largest one: each fetch reads twice as many."""
_MAX_HEADERS = 5_000
"""Headers of a record; decoding more would hold the event loop. A batch of a few kilobytes may have millions."""
_CODEC_BITS = 0x07
"""Bits of the compression codec in the attributes of a batch."""
_MAX_JSON_BYTES = 96 * 1024
"""A larger value is not searched by a path: parsing it would hold the event loop."""


class RecordCriteria(NamedTuple):
    """Conditions for a record, all of which must hold; an empty one always holds.

    ``key``, ``value`` and ``header_value`` are contained in the key, the value or the header ``header_name``. ``path``
    (names and indexes) exists in the JSON value, and leads to ``path_value`` exactly if that is not empty; a value
    larger than `_MAX_JSON_BYTES` has no path. A condition ``header_value`` needs a name, ``path_value`` a path.
    """

    key: bytes = b""
    value: bytes = b""
    header_name: str = ""
    header_value: bytes = b""
    path: tuple[str, ...] = ()
    path_value: str = ""

    def matches(self, record: Record) -> bool:
        """Return True if all conditions hold for a record."""
        if self.key and self.key not in (record.key or b""):
            return False
        if self.value and self.value not in (record.value or b""):
            return False
        if self.header_name and not any(
            name == self.header_name and self.header_value in (value or b"") for name, value in record.headers
        ):
            return False
        return not self.path or self._path_matches(record.value)

    def _path_matches(self, raw: bytes | None) -> bool:
        if raw is None or len(raw) > _MAX_JSON_BYTES:
            return False
        try:
            found: Any = json.loads(raw)
        except (ValueError, RecursionError):
            return False
        for name in self.path:
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and len(name) < 9 and int(name) < len(found):
                found = found[int(name)]
            else:
                return False
        text = found if isinstance(found, str) else json.dumps(found)
        return text == self.path_value if self.path_value else True


class MatchingRecord(NamedTuple):
    """Matching record, its partition, and whether it is part of a transaction."""

    partition: int
    record: Record
    is_transactional: bool


class ScanRange(NamedTuple):
    """Rest of a scan in one partition: next offset to read, and end offset (exclusive)."""

    partition: int
    position: int
    end: int


class RecordScan:
    """Scan of the records of a topic for matches, partition by partition; `find` reads, nothing is read before."""

    def __init__(
        self, env: Env, client: SessionClient, topic: str, ranges: list[ScanRange], criteria: RecordCriteria
    ) -> None:
        self._env = env
        self._client = client
        self._topic = topic
        self._criteria = criteria
        self.ranges = [each for each in ranges if each.position < each.end]
        """Ranges that are not scanned yet; empty at the end of the scan."""
        self.scanned = 0
        """Number of records scanned so far."""
        self.log_start_offsets: dict[int, int] = {}
        """Log start offset of each partition when it was read last."""
        self._found_bytes = 0
        self._next_fetch_bytes = _FIRST_FETCH_BYTES
        self.problems: list[str] = []
        """Messages about batches that could not be decoded."""

    async def find(self, limit: int) -> list[MatchingRecord]:
        """Continue the scan, and return the next matching records: at most ``limit``, within limits of bytes and time.

        Fewer records do not mean the end of the scan: it has ended when `ranges` is empty.

        Raises:
            ProtocolError: a request was refused. OSError: the leader cannot be reached. WireError: invalid response.
        """
        found: list[MatchingRecord] = []
        started_ms, read_bytes, self._found_bytes = self._env.monotonic_ms(), 0, 0
        while self.ranges and not self._is_full(found, limit) and read_bytes < MAX_CONSOLE_SCAN_BYTES:
            if self._env.monotonic_ms() - started_ms > MAX_CONSOLE_SCAN_MS:
                break
            raw = await self.fetch(self.ranges[0], self._next_fetch_bytes)
            self._next_fetch_bytes = min(2 * self._next_fetch_bytes, _FETCH_BYTES)
            if raw is None:
                continue
            read_bytes += len(raw)
            next_range = await run_in_background(self._env, self._scan(raw, self.ranges[0], found, limit))
            if next_range.position >= next_range.end:
                self.ranges.pop(0)
            else:
                self.ranges[0] = next_range
        return found

    async def fetch(self, part: ScanRange, max_bytes: int = _FETCH_BYTES) -> Any:
        """Return the bytes of batches from the batch with ``part.position`` on; `ranges` are unchanged.

        Empty bytes: end of the partition. None: the user is throttled.

        ``max_bytes``: limit of the bytes, but at least one batch is returned.

        Raises:
            ProtocolError: the request was refused. OSError: the leader cannot be reached. WireError: invalid response.
        """
        channel = await self._client.leader(self._topic, part.partition)
        row = fetch.FetchPartition(part.partition, fetch_offset=part.position, partition_max_bytes=max_bytes)
        topics = [fetch.FetchTopic(self._topic, partitions=[row])]
        request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=topics)
        response = await channel.call(request, channel.version_for(ApiKey.FETCH, LEADER_ONLY_FETCH_VERSION))
        check(response.error_code, None, self._topic)
        if not response.responses:
            return None
        answer = response.responses[0].partitions[0]
        check(answer.error_code, None, f"{self._topic}-{part.partition} at offset {part.position}")
        self.log_start_offsets[part.partition] = answer.log_start_offset
        return answer.records or b""

    def _scan(self, raw: Any, part: ScanRange, found: list[MatchingRecord], limit: int) -> Job[ScanRange]:
        """Append the matches in fetched batches to ``found`` and return the rest of the range, as a job.

        The rest is empty (``position`` equals ``end``) if there is no batch from its start on: the log was truncated.
        """
        position = part.position
        for at, header in legacy_records.iterate_any_batches(raw):
            records = () if header.is_control else self._records(raw, at, header, part.partition)
            for record in records:
                if record is not None and position <= record.offset < part.end:
                    self.scanned += 1
                    if self._criteria.matches(record):
                        found.append(MatchingRecord(part.partition, record, header.is_transactional))
                        self._found_bytes += len(record.key or b"") + len(record.value or b"")
                        if self._is_full(found, limit):
                            return part._replace(position=record.offset + 1)
                yield None
            position = max(position, header.next_offset)
            if position >= part.end:
                break
            yield None
        if position == part.position:
            return part._replace(position=part.end)  # no records up to the end: the log was truncated
        return part._replace(position=position)

    def _is_full(self, found: list[MatchingRecord], limit: int) -> bool:
        return len(found) >= limit or self._found_bytes >= MAX_CONSOLE_SCAN_BYTES

    def _records(self, raw: Any, at: int, header: BatchHeader, partition: int) -> Iterator[Record | None]:
        """Yield the records of a batch, and None to pause; a batch that cannot be decoded adds to `problems`."""
        try:
            if not legacy_records.any_crc_matches(raw, header, at):
                raise WireError("wrong checksum")
            if header.magic >= 2 and compression_type_of(header.attributes) is not CompressionType.NONE:
                raw, header = yield from decompress_batch(memoryview(raw)[at : at + header.size_bytes], header)
                at = 0
            yield from iterate_records(raw, header, at, MAX_CONSOLE_BATCH_BYTES, max_headers=_MAX_HEADERS)
        except WireError as error:
            self.problems.append(f"Batch at offset {header.base_offset} of partition {partition}: {error}")


def decompress_batch(raw: memoryview, header: BatchHeader) -> Generator[None, None, tuple[bytes, BatchHeader]]:
    """Return a batch with uncompressed records and its header, changed accordingly, as a job.

    The first 61 bytes of the batch, where its header was, are zeros.

    Raises:
        WireError: the batch is not data of its codec, or its uncompressed data are too large.
    """
    plain = bytearray(HEADER_BYTES)
    codec = compression_type_of(header.attributes)
    for piece in StreamDecompressor(codec, raw[HEADER_BYTES:], PIECE_BYTES, MAX_CONSOLE_BATCH_BYTES):
        plain += piece
        yield None
    attributes = header.attributes & ~_CODEC_BITS
    return bytes(plain), header._replace(attributes=attributes, batch_length=len(plain) - LOG_OVERHEAD_BYTES)
