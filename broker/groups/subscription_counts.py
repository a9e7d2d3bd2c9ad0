"""Number of members and of regular expressions that subscribe to each topic of a group.

A member may subscribe to 200,000 topics: equal counts are one object, and topics are counted in steps.

Source: ``SubscriptionCount.java``, ``ModernGroup.subscriptionType`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import NamedTuple

NAMES_PER_STEP = 1_000
COUNTS_PER_STEP = 20_000
MAX_NAMES_PER_CHANGE = 8_000
"""Largest subscription, in topics, that is counted at once; a record with more topics is replayed in steps."""
_MIN_STEPS_PER_CHANGE = 4


class SubscriptionCount(NamedTuple):
    """Number of members that subscribe to a topic by name, and of regular expressions that match it."""

    by_name_count: int = 0
    by_regex_count: int = 0


SubscriptionCounts = dict[str, SubscriptionCount]


def adjust_count(counts: dict[str, int], key: str | None, by: int) -> None:
    """Add ``by`` to the count of a key and delete it at zero; None and the empty string are not counted."""
    if key:
        left = counts.get(key, 0) + by
        if left > 0:
            counts[key] = left
        else:
            counts.pop(key, None)


def adjust_subscription_counts(
    counts: SubscriptionCounts, topics: Iterable[str], by_name: int = 0, by_regex: int = 0
) -> None:
    """Add ``by_name`` and ``by_regex`` to the counts of topics; delete topics with counts of zero."""
    for _ in adjust_subscription_counts_job(counts, topics, by_name, by_regex):
        pass


def adjust_subscription_counts_job(
    counts: SubscriptionCounts, topics: Iterable[str], by_name: int = 0, by_regex: int = 0
) -> Generator[None, None, None]:
    """Add ``by_name`` and ``by_regex`` to the subscription counts of ``topics``, as a job.

    Topics without subscriptions are removed, as by `adjust_subscription_counts`.
    """
    rest = iter(topics)
    while part := frozenset(islice(rest, NAMES_PER_STEP)):
        _adjust(counts, part, by_name, by_regex)
        yield


def _adjust(counts: SubscriptionCounts, topics: frozenset[str], by_name: int, by_regex: int) -> None:
    known = counts.keys() & topics
    moved: dict[SubscriptionCount, SubscriptionCount] = {}
    for topic in known:
        old = counts[topic]
        new = moved.get(old)
        if new is None:
            new = moved[old] = SubscriptionCount(old.by_name_count + by_name, old.by_regex_count + by_regex)
        if new.by_name_count <= 0 and new.by_regex_count <= 0:
            del counts[topic]
        else:
            counts[topic] = new
    if by_name > 0 or by_regex > 0:
        counts.update(dict.fromkeys(topics - known if known else topics, SubscriptionCount(by_name, by_regex)))


def distinct_counts_job(counts: SubscriptionCounts) -> Generator[None, None, set[SubscriptionCount]]:
    """Return the distinct values of the topic counts, as a job; no topic may be added or removed until its end."""
    out: set[SubscriptionCount] = set()
    rest = iter(counts.values())
    while part := set(islice(rest, COUNTS_PER_STEP)):
        out |= part
        yield
    return out


def is_homogeneous_subscription(regexes: Mapping[str, int], counts: Iterable[SubscriptionCount], members: int) -> bool:
    """Return True if, by the counts, all members subscribe to the same topics, by name or by one regular expression.

    False if any members subscribe by different expressions, or by name beside an expression, even if the topics are
    equal.

    Args:
        regexes: number of members by regular expression.
        counts: counts of the subscribed topics; may contain only the distinct ones.
        members: number of members of the group.
    """
    if not regexes:
        return all(topic.by_name_count == members for topic in set(counts))
    if next(iter(regexes.values())) != members:
        return False
    return all(topic.by_regex_count == 1 and topic.by_name_count <= 0 for topic in set(counts))


class CountedSubscriptions:
    """Topic counts of the subscriptions of a group's members; a large subscription is counted in steps."""

    def __init__(self) -> None:
        self._counts: SubscriptionCounts = {}
        self._pending: deque[Iterator[None]] = deque()

    def adjust(self, topics: Set[str], by_name: int = 0, by_regex: int = 0) -> None:
        """Add ``by_name`` and ``by_regex`` (may be negative) to the counts of ``topics``.

        A change of more than 8,000 topics is deferred until `count_pending` or ``counts`` is used, and so are smaller
        ones behind it. A smaller change does a few steps of the deferred ones, so that they do not accumulate.
        """
        self._pending.append(adjust_subscription_counts_job(self._counts, topics, by_name, by_regex))
        if len(topics) <= MAX_NAMES_PER_CHANGE:
            for _ in range(len(topics) // NAMES_PER_STEP + _MIN_STEPS_PER_CHANGE):
                if not self._pending:
                    break
                self._count_step()

    def _count_step(self) -> None:
        if next(self._pending[0], True):  # True: exhausted; a step yields None
            self._pending.popleft()

    def count_pending(self) -> Generator[None, None, None]:
        """Do the deferred changes of the counts, as a job.

        The rest stays deferred if the caller stops early.
        """
        while self._pending:
            self._count_step()
            yield

    @property
    def counts(self) -> SubscriptionCounts:
        """Counts by topic, after all deferred changes."""
        while self._pending:
            self._count_step()
        return self._counts
