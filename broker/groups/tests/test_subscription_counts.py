"""Counts of subscriptions: changes of all sizes in any order, and steps that are not completed."""

from __future__ import annotations

from ottla.broker.groups.subscription_counts import (
    MAX_NAMES_PER_CHANGE,
    NAMES_PER_STEP,
    CountedSubscriptions,
    SubscriptionCount,
)

LARGE = frozenset(f"large-{number}" for number in range(MAX_NAMES_PER_CHANGE + 1))


def pending_steps(subscriptions: CountedSubscriptions) -> int:
    return sum(1 for _ in subscriptions.count_pending())


def test_subscriptions_of_replayed_members_do_not_pile_up() -> None:
    topics = frozenset(f"topic-{number}" for number in range(NAMES_PER_STEP + NAMES_PER_STEP // 5))
    subscriptions = CountedSubscriptions()
    for _ in range(50):
        subscriptions.adjust(topics, by_name=1)
    assert pending_steps(subscriptions) == 0, "the next heartbeat would count them all at once"
    assert set(subscriptions.counts.values()) == {SubscriptionCount(50)}


def test_small_changes_behind_a_large_one_do_not_pile_up() -> None:
    subscriptions = CountedSubscriptions()
    subscriptions.adjust(LARGE, by_name=1)
    for number in range(100):
        subscriptions.adjust(frozenset([f"small-{number}"]), by_name=1)
    assert pending_steps(subscriptions) == 0
    assert len(subscriptions.counts) == len(LARGE) + 100


def test_small_change_behind_a_large_one_counts_few_steps_of_it() -> None:
    subscriptions = CountedSubscriptions()
    subscriptions.adjust(LARGE, by_name=1)
    subscriptions.adjust(frozenset(["small"]), by_name=1)
    assert pending_steps(subscriptions) > len(LARGE) // NAMES_PER_STEP // 2


def test_large_change_is_left_pending() -> None:
    subscriptions = CountedSubscriptions()
    subscriptions.adjust(LARGE, by_name=1)
    assert pending_steps(subscriptions) > len(LARGE) // NAMES_PER_STEP


def test_steps_that_are_not_finished_leave_the_rest_pending() -> None:
    subscriptions = CountedSubscriptions()
    subscriptions.adjust(LARGE, by_name=1)
    subscriptions.adjust(LARGE, by_name=1)
    steps = subscriptions.count_pending()
    next(steps)
    steps.close()
    assert set(subscriptions.counts.values()) == {SubscriptionCount(2)}
    assert subscriptions.counts.keys() == LARGE


def test_counts_read_between_two_steps_are_complete() -> None:
    subscriptions = CountedSubscriptions()
    subscriptions.adjust(LARGE, by_name=1)
    steps = subscriptions.count_pending()
    next(steps)
    assert len(subscriptions.counts) == len(LARGE)
    subscriptions.adjust(LARGE, by_name=-1)
    for _ in steps:
        pass
    assert subscriptions.counts == {}
