"""Segments in an object store: verified copies and reads, and each kind of damage reported."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.broker.storage.tiered.directory_store import DirectoryStore
from ottla.broker.storage.tiered.remote_storage import (
    CorruptRemoteSegmentError,
    IndexType,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from ottla.broker.storage.tiered.segment_format import CHECKSUM_CHUNK_BYTES, object_name
from ottla.broker.storage.tiered.segment_store import SegmentStore
from ottla.broker.storage.tiered.tests.segment_files import random_records, segment_metadata, write_segment
from ottla.env.memory_disk import DiskSession, MemoryDisk

SIZE = 5 * CHECKSUM_CHUNK_BYTES + 1234


class StoreFixture:
    """Segment in a store on a simulated disk."""

    def __init__(self, *, optional: bool = True, reads_back: bool = True) -> None:
        self.memory = MemoryDisk(random.Random(0), lambda: 0)
        self.disk: DiskSession = self.memory.session()
        self.disk.makedirs("/store")
        self.records = random_records(SIZE)
        self.files = write_segment(self.disk, "/log/events-3", self.records, optional=optional)
        self.store = SegmentStore(DirectoryStore(self.disk, "/store"), self.disk, reads_back=reads_back)
        self.metadata = segment_metadata(SIZE)
        self.name = object_name(self.metadata)
        self.path = f"/store/{self.name}"

    def copy(self) -> RemoteLogSegmentMetadata:
        custom = self.store.copy_segment(self.metadata, self.files)
        return replace(self.metadata, custom_metadata=custom)

    def fresh(self) -> SegmentStore:
        return SegmentStore(DirectoryStore(self.disk, "/store"), self.disk)

    def damage(self, position: int) -> None:
        data = self.memory.files[self.path].data
        data[position] ^= 0x40


@pytest.mark.parametrize("with_custom", [True, False])
def test_copied_segment_is_read_in_ranges_that_equal_the_local_file(*, with_custom: bool) -> None:
    fixture = StoreFixture()
    metadata = fixture.copy() if with_custom else replace(fixture.copy(), custom_metadata=None)
    store = fixture.fresh()
    rng = random.Random(5)
    for _ in range(100):
        start = rng.randrange(SIZE)
        end = start + rng.randrange(2 * CHECKSUM_CHUNK_BYTES)
        assert store.fetch_segment(metadata, start, end) == fixture.records[start:end]
    assert store.fetch_segment(metadata, 0, SIZE * 2) == fixture.records
    assert store.fetch_segment(metadata, SIZE, SIZE + 10) == b""
    assert store.fetch_segment(metadata, 7, 7) == b""
    with pytest.raises(ValueError, match="invalid range"):
        store.fetch_segment(metadata, 8, 7)


def test_indexes_of_a_copied_segment_equal_the_local_files() -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    contents = {
        IndexType.OFFSET: fixture.files.offset_index,
        IndexType.TIMESTAMP: fixture.files.time_index,
        IndexType.PRODUCER_SNAPSHOT: fixture.files.producer_snapshot,
        IndexType.TRANSACTION: fixture.files.transaction_index,
    }
    for index, path in contents.items():
        assert fixture.store.fetch_index(metadata, index) == bytes(fixture.memory.files[str(path)].data)
    assert fixture.store.fetch_index(metadata, IndexType.LEADER_EPOCH) == fixture.files.leader_epochs


def test_index_that_the_segment_lacks_is_not_found() -> None:
    fixture = StoreFixture(optional=False)
    metadata = fixture.copy()
    with pytest.raises(RemoteResourceNotFoundError, match="segment has no transaction index"):
        fixture.store.fetch_index(metadata, IndexType.TRANSACTION)
    with pytest.raises(RemoteResourceNotFoundError, match="segment has no producer_snapshot index"):
        fixture.store.fetch_index(metadata, IndexType.PRODUCER_SNAPSHOT)


def test_deleted_segment_is_not_found_also_when_its_descriptor_was_cached() -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    fixture.store.fetch_segment(metadata, 0, 10)
    fixture.store.delete_segment(metadata)
    fixture.store.delete_segment(metadata)
    for store in (fixture.store, fixture.fresh()):
        with pytest.raises(RemoteResourceNotFoundError):
            store.fetch_segment(metadata, 0, 10)
        with pytest.raises(RemoteResourceNotFoundError):
            store.fetch_index(metadata, IndexType.OFFSET)


def test_object_lost_behind_the_store_is_not_found() -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    del fixture.memory.files[fixture.path]
    with pytest.raises(RemoteResourceNotFoundError):
        fixture.store.fetch_segment(metadata, 0, 10)


def test_damaged_records_fail_only_reads_of_their_chunk() -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    fixture.damage(2 * CHECKSUM_CHUNK_BYTES + 99)
    store = fixture.fresh()
    assert store.fetch_segment(metadata, 0, 100) == fixture.records[:100]
    with pytest.raises(CorruptRemoteSegmentError, match=f"chunk at {2 * CHECKSUM_CHUNK_BYTES}"):
        store.fetch_segment(metadata, 0, SIZE)


@pytest.mark.parametrize("part", ["offset", "timestamp", "producer_snapshot", "transaction", "leader_epoch"])
def test_damaged_index_is_reported(part: str) -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    fixture.damage(fixture.store.describe(fixture.name).descriptor.parts[part].position)
    with pytest.raises(CorruptRemoteSegmentError, match=f"{part} is damaged"):
        fixture.fresh().fetch_index(metadata, IndexType(part))


@pytest.mark.parametrize("removed", [1, 100, 70_000, SIZE])
def test_truncated_object_is_reported(removed: int) -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    inode = fixture.memory.files[fixture.path]
    inode.truncate(max(len(inode.data) - removed, 0))
    for each in (metadata, replace(metadata, custom_metadata=None)):
        with pytest.raises(CorruptRemoteSegmentError):
            fixture.fresh().fetch_segment(each, 0, 10)


def test_foreign_object_under_the_name_is_reported() -> None:
    fixture = StoreFixture()
    metadata = replace(fixture.copy(), custom_metadata=None)
    fixture.memory.files[fixture.path].data[:] = b"PK" * 50_000
    with pytest.raises(CorruptRemoteSegmentError, match="no segment object"):
        fixture.fresh().fetch_segment(metadata, 0, 10)


def test_object_replaced_by_another_segment_is_reported() -> None:
    fixture = StoreFixture()
    metadata = fixture.copy()
    fixture.store.copy_segment(replace(fixture.metadata, max_timestamp_ms=1_767_830_400_001), fixture.files)
    with pytest.raises(CorruptRemoteSegmentError, match="object was replaced"):
        fixture.fresh().fetch_segment(metadata, 0, 10)


def test_copy_of_a_segment_with_another_length_stores_nothing() -> None:
    fixture = StoreFixture()
    with pytest.raises(RemoteStorageError, match=rf"segment has {SIZE} bytes \({SIZE + 1} expected\)"):
        fixture.store.copy_segment(replace(fixture.metadata, segment_size_bytes=SIZE + 1), fixture.files)
    assert fixture.path not in fixture.memory.files


def test_copy_of_a_missing_local_segment_fails_finally() -> None:
    fixture = StoreFixture()
    with pytest.raises(RemoteStorageError, match="cannot read segment") as caught:
        fixture.store.copy_segment(fixture.metadata, fixture.files._replace(log=Path("/log/none.log")))
    assert not isinstance(caught.value, RetriableRemoteStorageError)


class DamagingStore(DirectoryStore):
    """Store that changes each object after it was written."""

    damage: Callable[[bytearray], object]
    memory: MemoryDisk

    def put(self, name: str, chunks: object, minimum_bytes: int) -> None:
        super().put(name, chunks, minimum_bytes)  # type: ignore[arg-type]
        self.damage(self.memory.files[f"/store/{name}"].data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop(),
        lambda data: data.__setitem__(5, data[5] ^ 1),
        lambda data: data.__setitem__(-1, data[-1] ^ 1),
        lambda data: data.__setitem__(SIZE + 3, data[SIZE + 3] ^ 1),
        lambda data: data.clear(),
        lambda data: data.extend(b"x"),
    ],
)
def test_copy_that_the_store_changed_is_deleted_and_retriable(damage: Callable[[bytearray], object]) -> None:
    fixture = StoreFixture()
    objects = DamagingStore(fixture.disk, "/store")
    objects.damage, objects.memory = damage, fixture.memory
    with pytest.raises(RetriableRemoteStorageError, match="uploaded segment differs from the local one"):
        SegmentStore(objects, fixture.disk).copy_segment(fixture.metadata, fixture.files)
    assert fixture.path not in fixture.memory.files


def test_copy_without_reading_back_still_verifies_length_and_descriptor() -> None:
    fixture = StoreFixture()
    objects = DamagingStore(fixture.disk, "/store")
    objects.memory = fixture.memory
    store = SegmentStore(objects, fixture.disk, reads_back=False)
    objects.damage = lambda data: data.__setitem__(5, data[5] ^ 1)
    assert store.copy_segment(fixture.metadata, fixture.files) is not None, "the records are not read again"
    objects.damage = lambda data: data.pop()
    with pytest.raises(RetriableRemoteStorageError):
        store.copy_segment(fixture.metadata, fixture.files)


def test_verify_reads_every_byte() -> None:
    fixture = StoreFixture()
    fixture.copy()
    segment = fixture.store.describe(fixture.name)
    fixture.store.verify(fixture.name, segment)
    end = segment.descriptor.parts["record_checksums"].end
    for position in random.Random(2).sample(range(end), 40):
        fixture.damage(position)
        with pytest.raises(CorruptRemoteSegmentError):
            fixture.store.verify(fixture.name, segment)
        fixture.damage(position)
    fixture.store.verify(fixture.name, segment)
