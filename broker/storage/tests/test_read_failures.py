"""Disk errors while records are sent to a client: the log directory fails as for any other read.

Source: ``LogDirFailureChannel.java`` (4.3.1). Kafka closes the connection only, and logs no line at its default level.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.storage.log_dir_failures import LogDirFailureHandler
from ottla.broker.tests.broker_storage_fixture import BrokerStorageFixture
from ottla.broker.tests.connection_fixture import ClientStream, DispatcherFixture, frame, in_virtual_time
from ottla.broker.tests.handler_fixture import NOW_MS
from ottla.env.disk import FileSlice
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.log.tests.log_fixtures import make_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData


class ReadingConnection(ClientStream):
    """Connection that reads file ranges as they are sent."""

    async def send(self, chunks: Sequence[Any]) -> None:
        await super().send([c.read_all() if isinstance(c, FileSlice) else c for c in chunks])


class ServedFetch:
    """Node with two log directories, and a client that fetches from a log in the second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fixture = BrokerStorageFixture("/a,/b")
        self.storage = self.fixture.log_dirs
        self.directory = self.storage.directories[1]
        self.log = self.directory.create_partition("t", 0, b"t" * 16, LogConfig(), NOW_MS)
        self.log.append_as_leader(make_batch(0), 0, NOW_MS)
        self.lost: list[PartitionLog] = []
        losses = LogDirFailureHandler(self.storage, self.lost.clear)
        losses.on_logs_offline.append(self.lost.extend)
        self.fixture = DispatcherFixture(monkeypatch)
        self.fixture.services.log_dirs = self.storage
        self.fixture.services.fail = losses.handle_failure
        self.fixture.serve(ApiKey.FETCH, lambda context, request: self.answer)
        part = self.log.read(0, 1 << 20, 3, at_least_one=True)
        assert part is not None
        row = PartitionData(0, high_watermark=3, records=part)
        self.answer = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[row])])

    def fetch(self) -> ClientStream:
        stream = ReadingConnection()
        stream.send_bytes(frame(ApiKey.FETCH, 4, 1, FetchRequest()))
        stream.disconnect()

        async def serve() -> None:
            await self.fixture.connection(stream).serve()

        in_virtual_time(serve)
        assert stream.is_closed
        return stream


def test_read_error_while_a_fetch_is_sent_fails_the_log_directory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedFetch(monkeypatch)
    assert served.fetch().sends
    assert not served.lost

    def pread(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(type(served.log.segments.active.file), "pread", pread)
    assert not served.fetch().sends
    assert served.lost == [served.log]
    assert list(served.storage.offline) == [served.directory.path]
    result = next(r for r in caplog.records if r.name == "ottla.connection")
    assert result.levelno == logging.ERROR
    assert "Connection from 10.0.0.9 closed: error while reading t-0" in result.getMessage()
    assert "Input/output error" in result.getMessage()


def test_read_error_for_want_of_memory_fails_no_log_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    served = ServedFetch(monkeypatch)

    def pread(*_: Any) -> bytes:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(type(served.log.segments.active.file), "pread", pread)
    served.fetch()
    assert not served.storage.offline


def test_read_error_while_a_cached_chunk_is_sent_drops_the_chunk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served, dropped = ServedFetch(monkeypatch), list[object]()
    served.fixture.services.remote_reads = SimpleNamespace(discard_chunk=dropped.append)

    def pread(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    part = FileSlice(served.storage.directories[1].disk.open("/b/chunk", create=True), 0, 40_000)
    row = PartitionData(0, high_watermark=3, records=part)
    served.answer = FetchResponse(responses=[FetchableTopicResponse("t", partitions=[row])])
    monkeypatch.setattr(type(part.file), "pread", pread)
    assert not served.fetch().sends
    assert dropped == [part.file]
    assert not served.storage.offline


def test_truncation_while_a_fetch_is_sent_closes_only_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = ServedFetch(monkeypatch)
    served.log.truncate_to(0, NOW_MS)
    assert not served.fetch().sends
    assert not served.storage.offline
    assert "file was truncated while it was sent" in caplog.text
