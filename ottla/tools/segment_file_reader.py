"""Sequential reads of a segment file, or a metadata snapshot, that is open by itself, without its log."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from ottla.env.disk import Disk
from ottla.log.segment.batch_scan import (
    ByteRange,
    IncompleteBatch,
    LogOffsetPosition,
    iterate_batches,
    locate_batch,
)
from ottla.wire.errors import WireError
from ottla.wire.record_batch.batch_header import HEADER_BYTES, BatchHeader
from ottla.wire.record_batch.legacy_records import parse_any_header


class SegmentFileReader:
    """Open segment file, which is read in windows: a segment of 1 GiB needs 1 MiB of memory, or that of a batch.

    Use it as a context manager, which closes the file.

    Attributes:
        path: path of the file without ``.log``.
        size_bytes: size when it was opened, or the limit if that is smaller.
        damaged_ranges: always empty (interface `ScannableSegment`).
        file: open file.
    """

    def __init__(self, disk: Disk, path: str, max_bytes: int | None = None) -> None:
        """Open the file at ``path``, of which at most ``max_bytes`` are read; None: all.

        Raises:
            OSError: it cannot be opened.
        """
        self._name = path
        self.path = path.removesuffix(".log")
        self.damaged_ranges: list[ByteRange] = []
        self.file = disk.open(path, readonly=True)
        size_bytes = self.file.size()
        self.size_bytes = size_bytes if max_bytes is None else min(max_bytes, size_bytes)

    def __enter__(self) -> SegmentFileReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def batches(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield every batch or old message as (position, header, bytes); stop before an incomplete one at the end.

        Checksums are not verified.

        Raises:
            WireError: a batch is malformed; all earlier batches were yielded.
        """
        try:
            yield from iterate_batches(self, 0, check=False, name=self._name)
        except IncompleteBatch:
            return

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the whole batch at ``position``; None if there is none, or its header is malformed."""
        try:
            header = parse_any_header(self.file.pread(HEADER_BYTES, position))
        except WireError:
            return None
        return header if position + header.size_bytes <= self.size_bytes else None

    def locate(self, offset: int, position: int) -> LogOffsetPosition | None:
        """Return the first whole batch from ``position`` on that ends at or above ``offset``; None without one.

        Only headers are read.

        Raises:
            WireError: a batch before it has an invalid size.
        """
        try:
            found = locate_batch(self, offset, position)
        except IncompleteBatch:
            return None
        return None if found is None or found.position + found.size_bytes > self.size_bytes else found
