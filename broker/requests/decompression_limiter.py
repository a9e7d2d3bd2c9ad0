"""Limiter of memory-heavy decompression: a few at a time on a node, others wait.

A batch of a few kilobytes may expand to very much. Its validation keeps no records, but between two pieces the codec
keeps its state: zstd a window of up to 128 MiB, snappy a whole block. A hundred connections at once would keep a
hundred times that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import trio

from ottla.broker.config.limits import MAX_CONCURRENT_DECOMPRESSIONS
from ottla.jobs.job import Job

T = TypeVar("T")
DecompressionJob = Generator[bool | None, None, T]
"""Job that yields True once it holds much memory, or will with the next step (`compression.StreamDecompressor`): then
it waits for the limiter. Others never wait.
"""


class DecompressionLimiter:
    """Limiter of a node."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(MAX_CONCURRENT_DECOMPRESSIONS)

    @property
    def active_count(self) -> int:
        """Number of memory-heavy decompressions."""
        return self._limiter.borrowed_tokens

    def as_job(self, work: DecompressionJob[T]) -> Job[T]:
        """Make a job of ``work`` that waits before it keeps much memory until it may."""
        borrower, has_slot = object(), False
        try:
            while True:
                try:
                    keeps_much = next(work)
                except StopIteration as end:
                    result: T = end.value
                    return result
                if keeps_much and not has_slot:
                    yield self._limiter.acquire_on_behalf_of(borrower)
                    has_slot = True
                else:
                    yield None
        finally:
            work.close()
            if has_slot:
                self._limiter.release_on_behalf_of(borrower)
