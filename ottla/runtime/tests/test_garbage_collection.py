"""Full garbage collections of a node."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.runtime import garbage_collection
from ottla.runtime.garbage_collection import CHECK_EVERY_S, MEMORY_GROWTH_BYTES, collect_as_memory_grows


def test_freeze_garbage_collector_makes_full_collections_rare() -> None:
    before = gc.get_threshold()
    try:
        garbage_collection.freeze_garbage_collector()
        assert gc.get_threshold() == (*before[:2], garbage_collection.FULL_COLLECTION_AFTER)
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_full_collection_follows_growth_of_the_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter more at each check: one collection for each `MEMORY_GROWTH_BYTES`; after a fall, from the least."""
    quarter = MEMORY_GROWTH_BYTES // 4
    sizes = [10, 11, 12, 13, 14, 15, 5, 6, 9, 9]
    resident, collections = [0], list[int]()

    def collect() -> int:
        collections.append(resident[0] // quarter)
        return 0

    monkeypatch.setattr(garbage_collection.gc, "collect", collect)
    env: Any = SimpleNamespace(sleep=trio.sleep, process_stats=lambda: SimpleNamespace(resident_bytes=resident[0]))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect_as_memory_grows, env)
            for size in sizes:
                resident[0] = size * quarter
                await trio.sleep(CHECK_EVERY_S)
                await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert collections == [14, 9]


def test_release_free_memory_calls_malloc_trim_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(garbage_collection.ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=calls.append))
    garbage_collection.release_free_memory()
    assert calls == [0]


def test_release_free_memory_without_malloc_trim_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collection.ctypes, "CDLL", lambda name: SimpleNamespace())
    garbage_collection.release_free_memory()
