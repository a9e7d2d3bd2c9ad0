"""Fetch of remote records through the chunk cache: ranges of files, eviction, slow consumers, failed files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio

from ottla.broker.handlers.fetch import fetch
from ottla.broker.handlers.fetch.tests.test_fetch import request, rows_of
from ottla.broker.handlers.fetch.tests.test_remote_fetch import NEWEST, local_bytes, send
from ottla.broker.storage.tiered.remote_segment_reader import read_records
from ottla.broker.storage.tiered.tests.remote_reads_fixture import TieredFixture
from ottla.broker.tests.handler_fixture import as_decoded
from ottla.env.disk import FileSlice
from ottla.env.memory_disk import MemoryFile
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.chunk_sequence import flatten_chunks
from ottla.wire.framing import encode_response


def test_fetch_of_cached_records_is_sent_from_files_of_the_chunk_cache_at_once() -> None:
    fixture = TieredFixture()
    fixture.cache(400)
    fixture.host()
    fixture.append_batches(50)
    fixture.tier()
    for each in (1000, 300):
        answer, took = fixture.send(fetch.handle, ApiKey.FETCH, NEWEST, request(("t", 0, 6), each=each, wait=5000))
        chunks = [chunk for chunk in encode_response(ApiKey.FETCH, NEWEST, 1, answer) if type(chunk) is FileSlice]
        assert {Path(cast("MemoryFile", chunk.file)._path).parent for chunk in chunks} == {Path("/cache")}
        assert b"".join(chunk.read_all() for chunk in chunks) == local_bytes(fixture, 6, each)
        assert (took, fixture.remote.calls) == (0, 1)
    assert fixture.read_stats.fetched_bytes == 1300
    assert fixture.remote.read_quota.recorded == [1000, 300]


def test_fetch_yields_between_the_reads_of_open_chunks() -> None:
    fixture = TieredFixture()
    fixture.cache()
    for name in ("t", "u"):
        fixture.host(name)
        fixture.append_batches(50, name)
        fixture.tier(name)
    wanted = request(("t", 0, 0), ("u", 0, 0), each=1000)
    send(fixture, wanted)
    before = fixture.read_stats.fetches
    steps = [fixture.read_stats.fetches - before for _ in fetch.handle(fixture.context(ApiKey.FETCH, NEWEST), wanted)]
    assert (1 in steps, steps[-1]) == (True, 2)


def test_chunks_that_are_evicted_before_the_response_is_sent_are_sent() -> None:
    fixture = TieredFixture()
    cached = fixture.cache(400, max_bytes=5000)
    fixture.host()
    fixture.append_batches(50)
    fixture.tier()
    send(fixture, request(("t", 0, 0), each=1000))
    answer, _ = fixture.send(fetch.handle, ApiKey.FETCH, NEWEST, request(("t", 0, 0), each=1000))
    for offset in range(10, 120, 3):
        send(fixture, request(("t", 0, offset), each=1000))
    assert cached.stats.evicted > 5
    (row,) = rows_of(as_decoded(answer, NEWEST))
    assert row.records == local_bytes(fixture, 0, 1000)


def test_responses_to_many_slow_consumers_keep_few_files_and_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.storage.tiered.remote_segment_reader.CROWDED_READ_BYTES", 250)
    fixture = TieredFixture()
    cached = fixture.cache(400, max_bytes=8 * 400)
    fixture.host()
    fixture.append_batches(200)
    log = fixture.tier()
    held: list[tuple[int, Any]] = []
    for offset in range(0, log.local_log_start_offset, 3):
        answer, _ = fixture.send(fetch.handle, ApiKey.FETCH, NEWEST, request(("t", 0, offset), each=1000))
        held.append((offset, answer.responses[0].partitions[0].records))
        del answer
    parts = [part for _, records in held for part in flatten_chunks([records])]
    files = {part.file for part in parts if type(part) is FileSlice}
    assert len(held) > 150
    assert 8 < len(files) <= 8 + 8 + 3, "open in the cache, released, and of the response that reached the limit"
    assert max(len(part) for part in parts if type(part) is not FileSlice) <= 250
    for offset, records in held:
        assert len(records) > 0
        assert bytes(read_records(records)) == local_bytes(fixture, offset, len(records))
    held.clear()
    parts.clear()
    files.clear()
    del records
    assert not cached.is_crowded()
    answer, _ = fixture.send(fetch.handle, ApiKey.FETCH, NEWEST, request(("t", 0, 0), each=1000))
    assert all(type(part) is FileSlice for part in flatten_chunks([answer.responses[0].partitions[0].records]))


def test_chunk_that_could_not_be_sent_is_fetched_again() -> None:
    fixture = TieredFixture()
    cached = fixture.cache()
    fixture.host()
    fixture.append_batches(50)
    fixture.tier()
    send(fixture, request(("t", 0, 0)))
    answer, _ = fixture.send(fetch.handle, ApiKey.FETCH, NEWEST, request(("t", 0, 0)))
    part = answer.responses[0].partitions[0].records

    async def fail() -> None:
        fixture.reads.discard_chunk(part.file)
        await trio.sleep(1)

    fixture.run(fail)
    before = cached.stats.misses
    (row,), _ = send(fixture, request(("t", 0, 0)))
    assert row.records == local_bytes(fixture, 0, 1 << 20)
    assert cached.stats.misses == before + 1
