"""Limiter of decompressions with much memory: a few at a time on a node, others wait.

A batch of a few kilobytes may decompress to very many bytes. Its validation keeps no records, but between two time
slices the codec keeps its state: zstd a window of up to 128 MiB, snappy a whole block. A hundred connections would keep
a hundred times that.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import trio

from ottla.broker.config.limits import MAX_CONCURRENT_DECOMPRESSIONS
from ottla.jobs.job import Job

T = TypeVar("T")
DecompressionJob = Generator[bool | None, None, T]
"""Job that yields True if it holds much memory, or will after the next step, None otherwise.

Before such a step it waits for the limiter (`compression.StreamDecompressor`).
"""


class DecompressionLimiter:
    """Limiter for the decompressions of a node: `MAX_CONCURRENT_DECOMPRESSIONS` may hold much memory at a time."""

    def __init__(self) -> None:
        self._limiter = trio.CapacityLimiter(MAX_CONCURRENT_DECOMPRESSIONS)

    @property
    def active_count(self) -> int:
        """Number of decompressions that hold much memory now."""
        return self._limiter.borrowed_tokens

    def as_job(self, work: DecompressionJob[T]) -> Job[T]:
        """Return ``work`` as a job that waits for the limiter before it holds much memory, and releases it at last."""
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
