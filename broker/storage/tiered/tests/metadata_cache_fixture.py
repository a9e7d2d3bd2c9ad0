"""Fixture of tests of remote log metadata: a cache with short commands."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator

from ottla.broker.storage.tiered.remote_log_metadata import RemoteLogSegmentMetadataUpdate
from ottla.broker.storage.tiered.remote_log_metadata_cache import RemoteLogMetadataCache
from ottla.broker.storage.tiered.remote_storage import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
)

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState


class CountingDict(dict[int, int]):
    """Leader epochs that count how often all of them are read."""

    scans = 0

    def __iter__(self) -> Iterator[int]:
        self.scans += 1
        return super().__iter__()

    def items(self) -> ItemsView[int, int]:  # type: ignore[override]
        self.scans += 1
        return super().items()


class CacheFixture:
    """Cache with short commands; a segment is named by a number."""

    def __init__(self) -> None:
        self.cache = RemoteLogMetadataCache()
        self.cache.is_initialized = True

    def add(
        self,
        number: int,
        start: int,
        end: int,
        epochs: dict[int, int],
        *,
        txns: bool = False,
        newest_ms: int = 0,
        size_bytes: int = 100,
    ) -> bool:
        return self.cache.add(
            RemoteLogSegmentMetadata(
                segment_id(number), start, end, newest_ms, 1, 0, size_bytes, epochs, txn_index_empty=not txns
            )
        )

    def set(self, number: int, *states: RemoteLogSegmentState) -> list[bool]:
        updates = [RemoteLogSegmentMetadataUpdate(segment_id(number), 0, None, state, 1) for state in states]
        return [self.cache.update(update) for update in updates]

    def copy(
        self,
        number: int,
        start: int,
        end: int,
        epochs: dict[int, int],
        *,
        txns: bool = False,
        newest_ms: int = 0,
        size_bytes: int = 100,
    ) -> None:
        assert self.add(number, start, end, epochs, txns=txns, newest_ms=newest_ms, size_bytes=size_bytes)
        assert self.set(number, FINISHED) == [True]

    def read(self, epoch: int, offset: int) -> int | None:
        return segment_number(self.cache.segment_for(epoch, offset))

    def listed(self, epoch: int | None = None) -> list[int | None]:
        return [segment_number(metadata) for metadata in self.cache.list_segments(epoch)]


def segment_id(number: int) -> RemoteLogSegmentId:
    return RemoteLogSegmentId(bytes(16), "t", 0, number.to_bytes(16, "big"))


def segment_number(metadata: RemoteLogSegmentMetadata | None) -> int | None:
    return None if metadata is None else int.from_bytes(metadata.segment_id.id, "big")
