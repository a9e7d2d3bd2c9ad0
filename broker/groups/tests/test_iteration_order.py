"""Orders of Java's hash sets and Kafka's timeline maps, as recorded from Java 17."""

from __future__ import annotations

import pytest

from ottla.broker.groups.java_collections.iteration_order import hash_map_order, timeline_hash_map_order

SOURCE_AND_20_REPARTITION_TOPICS = """
    repartition-11 repartition-12 repartition-10 repartition-19 repartition-17 source repartition-18 repartition-9
    repartition-15 repartition-8 repartition-16 repartition-7 repartition-13 repartition-6 repartition-14 repartition-5
    repartition-4 repartition-3 repartition-2 repartition-1 repartition-0
"""
"""``new HashSet<>(List.of("source"))`` with 20 further strings: it has grown from 16 to 32 buckets."""


@pytest.mark.behaviour("C-194")
@pytest.mark.parametrize(
    ("keys", "copied", "order"),
    [
        (["source", *(f"repartition-{number}" for number in range(20))], 1, SOURCE_AND_20_REPARTITION_TOPICS),
        ([f"t{number}" for number in range(13)], 13, "t4 t5 t6 t7 t8 t9 t10 t12 t11 t0 t1 t2 t3"),
    ],
)
def test_hash_map_order_of_a_copied_set_is_that_of_java(keys: list[str], copied: int, order: str) -> None:
    assert hash_map_order(keys, copied=copied) == order.split()


@pytest.mark.behaviour("C-196")
@pytest.mark.parametrize(
    ("keys", "order"),
    [
        ([f"member-{number}" for number in range(3)], "0 2 1"),
        ([f"member-{number}" for number in range(12)], "3 10 8 0 5 2 7 4 11 9 1 6"),
        ([f"member-{number}" for number in range(13)], "3 10 8 0 5 12 2 7 4 11 9 1 6"),
    ],
)
def test_timeline_hash_map_order_of_members_is_that_of_kafka(keys: list[str], order: str) -> None:
    assert timeline_hash_map_order(keys) == [f"member-{number}" for number in order.split()]


def test_timeline_hash_map_order_equal_and_negative_hashes_is_that_of_kafka() -> None:
    """AaAa, BBBB and AaBB have one hash; that of the fourth is -2^31."""
    keys = ["Zebra", "consumer-1-8f3c", "ünïcode", "polygenelubricants", "a", "AaAa", "BBBB", "AaBB"]
    order = "consumer-1-8f3c polygenelubricants Zebra \u00fcn\u00efcode AaBB BBBB AaAa a"
    assert timeline_hash_map_order(keys) == order.split()
