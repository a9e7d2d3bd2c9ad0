"""Sequence jobs: they yield even while they skip items."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from ottla.jobs.job import run_to_end
from ottla.jobs.sequences import (
    YIELD_EVERY,
    YIELD_EVERY_DECODED,
    collect_distinct_job,
    collect_job,
    find_duplicates_job,
    first_occurrences,
    free_job,
)
from ottla.wire.codec import compiler
from ottla.wire.codec.decode_budget import DecodeBudget
from ottla.wire.codec.lazy_array import LARGE_ELEMENT_BYTES, LazyArray
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

MANY = 10 * YIELD_EVERY_DECODED


def run_and_count_yields(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the result of a job and the number of yields."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, pauses
        pauses += 1


def test_collect_job_yields_every_16_items() -> None:
    assert run_and_count_yields(collect_job(iter(range(MANY)))) == (list(range(MANY)), 10)


def test_collect_distinct_job_keeps_order_and_yields_among_duplicates() -> None:
    found, pauses = run_and_count_yields(collect_distinct_job(["b", "a"] * (MANY // 2)))
    assert (list(found), pauses) == (["b", "a"], 10)


def test_first_occurrences_yields_none_for_each_repeated_item() -> None:
    found = list(first_occurrences(["a", *["b"] * MANY], lambda item: item, {"b"}))
    assert [item for item in found if item is not None] == [("a", False), ("b", True)]
    assert found.count(None) == MANY - 1


@pytest.mark.parametrize("kind", [list, set, dict.fromkeys])
def test_free_job_empties_a_collection_with_a_pause_every_hundred_items(kind: Callable[[range], Any]) -> None:
    items = kind(range(5 * YIELD_EVERY))
    left = [len(items) for _ in free_job(items)]
    assert left == [4 * YIELD_EVERY, 3 * YIELD_EVERY, 2 * YIELD_EVERY, YIELD_EVERY, 0]


def test_find_duplicates_job_decodes_bounded_bytes_between_yields() -> None:
    configs = [CreatableTopicConfig("", "") for _ in range(1300)]
    request = CreateTopicsRequest([CreatableTopic(f"t{n}", 1, 1, configs=configs) for n in range(300)])
    raw = compiler.encode(request, 7)
    body: Any = run_to_end(compiler.decode_job(CreateTopicsRequest, 7, raw, 0, DecodeBudget(len(raw))))[0]
    assert isinstance(body.topics, LazyArray), "elements are decoded on access"
    _, pauses = run_and_count_yields(find_duplicates_job(topic.name for topic in body.topics))
    assert len(raw) / pauses < 20 * LARGE_ELEMENT_BYTES
