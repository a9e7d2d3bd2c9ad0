"""Segments in an S3-compatible server, with the faults of such servers."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.storage.tiered.cloud_store import CloudStore, CloudStoreOptions, InvalidStoreError
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.broker.storage.tiered.segment_format import object_name
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.tests.s3_server import (
    S3Server,
    changed,
    done_but_failed,
    held_back,
    running_server,
    status,
)
from ottla.broker.storage.tiered.tests.segment_files import random_records, segment_metadata, write_segment
from ottla.runtime.real_disk import RealDisk

PART = 5 * 1024 * 1024
LARGE = 2 * PART + 12_345
SMALL = 300_000


@pytest.fixture(scope="module")
def shared_server() -> Iterator[S3Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def server(shared_server: S3Server) -> S3Server:
    shared_server.reset()
    return shared_server


class Segment:
    """Local segment and a store in the server."""

    def __init__(self, server: S3Server, directory: Path, size: int, *, retries: int = 0, timeout_ms: int = 10_000):
        options = CloudStoreOptions(
            timeout_ms=timeout_ms,
            max_retries=retries,
            retry_backoff_ms=1,
            part_bytes=PART,
            client={"allow_http": "true"},
        )
        self.objects = CloudStore("s3://segments/cluster-1", server.settings(), options)
        self.store = SegmentStore(self.objects, RealDisk())
        self.records = random_records(size)
        self.files = write_segment(RealDisk(), str(directory), self.records)
        self.metadata = segment_metadata(size)
        self.name = object_name(self.metadata)

    def copy(self) -> RemoteLogSegmentMetadata:
        return replace(self.metadata, custom_metadata=self.store.copy_segment(self.metadata, self.files))

    def names(self) -> list[str]:
        return [each.name for each in self.objects.list_objects()]


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_copied_segment_is_listed_and_read_and_deleted(server: S3Server, tmp_path: Path, size: int) -> None:
    segment = Segment(server, tmp_path, size)
    metadata = segment.copy()
    assert segment.names() == [segment.name]
    assert [x.name for x in segment.objects.list_objects("events/")] == [segment.name]
    assert list(segment.objects.list_objects("event/")) == []
    assert segment.store.fetch_segment(metadata, 0, size) == segment.records
    assert segment.store.fetch_segment(metadata, 100_000, 200_001) == segment.records[100_000:200_001]
    assert segment.store.fetch_index(metadata, IndexType.LEADER_EPOCH) == segment.files.leader_epochs
    uploads = [x for x in server.requests if "uploadId" in x]
    assert bool(uploads) == (size > PART), "only a large segment is sent in parts"
    segment.store.delete_segment(metadata)
    segment.store.delete_segment(metadata)
    assert segment.names() == []
    with pytest.raises(RemoteResourceNotFoundError, match="object does not exist"):
        segment.store.fetch_segment(metadata, 0, 10)


def test_first_read_of_a_segment_takes_two_requests_and_later_ones_one(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)
    metadata = segment.copy()
    fresh = SegmentStore(segment.objects, RealDisk())
    server.requests.clear()
    fresh.fetch_segment(metadata, 0, 1000)
    assert len(server.requests) == 2
    fresh.fetch_segment(metadata, 1000, 2000)
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [500, 503, 429])
def test_server_error_is_retried(server: S3Server, tmp_path: Path, code: int) -> None:
    segment = Segment(server, tmp_path, SMALL, retries=2)
    server.inject(status(code), method="PUT", times=2)
    server.inject(status(code), method="GET", times=2)
    metadata = segment.copy()
    server.inject(status(code), method="GET", times=2)
    assert segment.store.fetch_segment(metadata, 0, SMALL) == segment.records


@pytest.mark.parametrize(
    ("code", "retriable"), [(500, True), (503, True), (429, True), (408, True), (400, False), (403, False)]
)
def test_error_that_remains_is_retriable_or_final(
    server: S3Server, tmp_path: Path, code: int, *, retriable: bool
) -> None:
    segment = Segment(server, tmp_path, SMALL)
    metadata = segment.copy()
    for call in (
        segment.copy,
        lambda: SegmentStore(segment.objects, RealDisk()).fetch_segment(metadata, 0, 10),
        lambda: segment.store.delete_segment(metadata),
        segment.names,
    ):
        server.inject(status(code), times=1)
        with pytest.raises(RemoteStorageError) as caught:
            call()
        assert isinstance(caught.value, RetriableRemoteStorageError) == retriable, caught.value
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600
        server.faults.clear()


def test_request_without_a_response_times_out_and_is_retriable(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL, timeout_ms=100)
    server.inject(held_back(server), method="PUT")
    with pytest.raises(RetriableRemoteStorageError):
        segment.copy()
    assert segment.names() == []


def test_lost_response_of_an_upload_is_retried_to_the_same_object(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL, retries=1)
    server.inject(done_but_failed(), method="PUT")
    metadata = segment.copy()
    assert segment.names() == [segment.name]
    assert segment.store.fetch_segment(metadata, 0, SMALL) == segment.records


@pytest.mark.parametrize("code", [500, 403])
@pytest.mark.parametrize("query", ["uploads", "partNumber=2", "uploadId"])
def test_failed_multipart_upload_is_aborted(server: S3Server, tmp_path: Path, query: str, code: int) -> None:
    segment = Segment(server, tmp_path, LARGE)
    server.inject(status(code), method="POST" if query != "partNumber=2" else "PUT", query=query)
    with pytest.raises(RemoteStorageError):
        segment.copy()
    assert segment.names() == []
    assert not server.bucket.multiparts, "no parts are left in the bucket"
    server.faults.clear()
    assert segment.store.fetch_segment(segment.copy(), 0, LARGE) == segment.records


def test_local_segment_that_shrinks_during_the_upload_aborts_it(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, LARGE)

    class ShrinkingDisk(RealDisk):
        def open(self, path: str, *, create: bool = False, readonly: bool = False, mode: int = 0o644):  # type: ignore[no-untyped-def]
            file = super().open(path, create=create, readonly=readonly, mode=mode)
            if path.endswith(".log"):
                read = file.pread
                file = type(
                    "Shrinking",
                    (),
                    {
                        "size": file.size,
                        "close": file.close,
                        "pread": staticmethod(lambda size, at: read(size, at) if at < PART else b""),
                    },
                )()
            return file

    with pytest.raises(RemoteStorageError, match="segment was truncated"):
        SegmentStore(segment.objects, ShrinkingDisk()).copy_segment(segment.metadata, segment.files)
    assert segment.names() == []
    assert not server.bucket.multiparts


def test_wrong_etag_of_a_part_fails_the_upload(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, LARGE)
    server.inject(
        changed(lambda body: body, ETag='"0123456789abcdef0123456789abcdef"'), method="PUT", query="partNumber=1"
    )
    with pytest.raises(RemoteStorageError):
        segment.copy()
    assert segment.names() == []
    assert [x for x in server.requests if x.startswith("DELETE") and "uploadId" in x], "the upload is aborted"
    assert not server.bucket.multiparts


def test_wrong_etag_of_a_read_does_not_matter_as_checksums_decide(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)
    metadata = segment.copy()
    server.inject(changed(lambda body: body, ETag='"wrong"'), method="GET")
    assert segment.store.fetch_segment(metadata, 0, SMALL) == segment.records


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_upload_that_the_server_acknowledged_but_lost_is_retriable(server: S3Server, tmp_path: Path, size: int) -> None:
    segment = Segment(server, tmp_path, size)
    lost = status(200, b"<Error><Code>InternalError</Code><Message>lost</Message></Error>")
    server.inject(lost, method="POST" if size > PART else "PUT", query="uploadId" if size > PART else "")
    with pytest.raises(RetriableRemoteStorageError):
        segment.copy()
    assert segment.names() == []


def test_object_that_the_server_truncated_is_deleted_and_retriable(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)

    def truncating(inner, environ, start_response):  # type: ignore[no-untyped-def]
        import io

        body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))[:-1000]
        return inner({**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}, start_response)

    server.inject(truncating, method="PUT")
    with pytest.raises(RetriableRemoteStorageError, match="uploaded segment differs from the local one"):
        segment.copy()
    assert segment.names() == []


def test_response_that_ends_early_is_continued(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL, retries=3)
    metadata = segment.copy()
    segment.store.fetch_segment(metadata, 0, 10)
    server.inject(changed(lambda body: body[:100_000], length=SMALL), method="GET")
    assert segment.store.fetch_segment(metadata, 0, SMALL) == segment.records


def test_response_with_fewer_bytes_is_reported(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)
    metadata = segment.copy()
    server.inject(changed(lambda body: body[:-1]), method="GET")
    with pytest.raises(RemoteStorageError):
        segment.store.fetch_segment(metadata, 0, SMALL)


def test_response_with_damaged_bytes_is_reported(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)
    metadata = segment.copy()
    server.inject(changed(lambda body: body[:5] + bytes([body[5] ^ 1]) + body[6:]), method="GET")
    with pytest.raises(CorruptRemoteSegmentError, match="chunk at 0"):
        segment.store.fetch_segment(metadata, 0, SMALL)
    assert segment.store.fetch_segment(metadata, 0, SMALL) == segment.records


def test_lost_object_is_not_found(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)
    metadata = segment.copy()
    server.bucket.keys.pop(f"cluster-1/{segment.name}")
    with pytest.raises(RemoteResourceNotFoundError):
        segment.store.fetch_segment(metadata, 0, 10)


def test_missing_bucket_is_a_final_error(server: S3Server, tmp_path: Path) -> None:
    segment = Segment(server, tmp_path, SMALL)
    options = CloudStoreOptions(max_retries=0, client={"allow_http": "true"})
    store = SegmentStore(CloudStore("s3://no-such-bucket", server.settings(), options), RealDisk())
    with pytest.raises(RemoteStorageError, match="bucket does not exist") as caught:
        store.copy_segment(segment.metadata, segment.files)
    assert type(caught.value) is RemoteStorageError


def test_server_that_is_gone_is_retriable(tmp_path: Path) -> None:
    with running_server() as server:
        segment = Segment(server, tmp_path, SMALL)
    with pytest.raises(RetriableRemoteStorageError):
        segment.copy()


@pytest.mark.parametrize(
    ("url", "settings", "message"),
    [
        ("ftp://host/x", {}, "Unable to recognise URL"),
        ("s3://segments", {"nonsense": "1"}, "'nonsense' is not valid"),
        ("nothing", {}, "cannot open the store nothing"),
    ],
)
def test_invalid_url_or_setting_is_named(url: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidStoreError, match=message):
        CloudStore(url, settings)


def test_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(InvalidStoreError, match=r"pip install 'ottla\[tiered\]'"):
        CloudStore("s3://segments", {})
