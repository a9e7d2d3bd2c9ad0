"""Numbers of members, and of regular expressions, that subscribe to a topic.

A member may name 200,000 topics: equal counts are one object, and the names are counted a part at a time.

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
"""Names of a subscription that are counted without a pause; a record with more of them is replayed in steps."""
_MIN_STEPS_PER_CHANGE = 4


class SubscriptionCount(NamedTuple):
    """Numbers of members, and of regular expressions, that name a topic."""

    by_name_count: int = 0
    by_regex_count: int = 0


SubscriptionCounts = dict[str, SubscriptionCount]


def adjust_count(counts: dict[str, int], key: str | None, by: int) -> None:
    """Count one string up or down and drop it at zero; None and the empty string are not counted."""
    if key:
        left = counts.get(key, 0) + by
        if left > 0:
            counts[key] = left
        else:
            counts.pop(key, None)


def adjust_subscription_counts(
    counts: SubscriptionCounts, topics: Iterable[str], by_name: int = 0, by_regex: int = 0
) -> None:
    """Count topics up or down and drop those at zero."""
    for _ in adjust_subscription_counts_job(counts, topics, by_name, by_regex):
        pass


def adjust_subscription_counts_job(
    counts: SubscriptionCounts, topics: Iterable[str], by_name: int = 0, by_regex: int = 0
) -> Generator[None, None, None]:
    """Count topics up or down, as `adjust_subscription_counts`; yield between two steps."""
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
    """Return the distinct counts of topics; yield between two steps."""
    out: set[SubscriptionCount] = set()
    rest = iter(counts.values())
    while part := set(islice(rest, COUNTS_PER_STEP)):
        out |= part
        yield
    return out


def is_homogeneous_subscription(regexes: Mapping[str, int], counts: Iterable[SubscriptionCount], members: int) -> bool:
    """Return whether all members subscribe to the same topics, as far as counts show it."""
    if not regexes:
        return all(topic.by_name_count == members for topic in set(counts))
    if next(iter(regexes.values())) != members:
        return False
    return all(topic.by_regex_count == 1 and topic.by_name_count <= 0 for topic in set(counts))


class CountedSubscriptions:
    """Counts of the topics that the members of a group subscribe to; a large subscription is counted in steps."""

    def __init__(self) -> None:
        self._counts: SubscriptionCounts = {}
        self._pending: deque[Iterator[None]] = deque()

    def adjust(self, topics: Set[str], by_name: int = 0, by_regex: int = 0) -> None:
        """Count topics up or down: a large number of them when `count_pending` or `counts` is called.

        A change that is not large counts more than itself, so that changes behind a large one do not pile up.
        """
        self._pending.append(adjust_subscription_counts_job(self._counts, topics, by_name, by_regex))
        if len(topics) <= MAX_NAMES_PER_CHANGE:
            for _ in range(len(topics) // NAMES_PER_STEP + _MIN_STEPS_PER_CHANGE):
                if not self._pending:
                    break
                self._count_step()

    def _count_step(self) -> None:
        if next(self._pending[0], True):  # the end; a step yields None
            self._pending.popleft()

    def count_pending(self) -> Generator[None, None, None]:
        """Count what is not counted yet; yield between two steps. A caller that stops early leaves the rest pending."""
        while self._pending:
            self._count_step()
            yield

    @property
    def counts(self) -> SubscriptionCounts:
        """The counts of all topics."""
        while self._pending:
            self._count_step()
        return self._counts
