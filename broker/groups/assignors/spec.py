"""What an assignor is told of a group, and what it gives.

Source: ``GroupSpecImpl.java``, ``SubscribedTopicDescriberImpl.java``, ``ConsumerGroupPartitionAssignor`` (apache/kafka
4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from itertools import repeat
from typing import NamedTuple

from ottla.broker.groups import java_order

Target = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, in the order Java would have them."""
Draft = dict[bytes, dict[int, None]]
"""A target that is being changed."""
NOTHING: Target = {}
STEP = 500
"""So many partitions, or topics, are looked at in one step."""
ROWS_AN_ID = 4
"""To put a topic in order costs as much as to look at so many."""

Assigning = Generator[None, None, dict[str, Target]]
"""The new targets by member, in steps; who is not in them has none."""


class Unassignable(Exception):
    """The targets so far cannot be gone on from: a member of the older protocol brought them along."""


class Claim(NamedTuple):
    """What a member wants and has: ids of topics that exist, how many it named, its target so far."""

    topics: tuple[bytes, ...]
    named: int
    target: Target
    instance_id: str | None = None


class Spec(NamedTuple):
    """A group: members in the order Kafka looks at them, whether all want the same, partitions of each topic."""

    members: Mapping[str, Claim]
    homogeneous: bool
    partitions: Mapping[bytes, int]


def steps(rows: int) -> Iterator[None]:
    """So many topics or partitions were looked at in one go: that counts as more steps than one where it was long."""
    return repeat(None, 1 + rows // STEP)


def draft_of(target: Target) -> Draft:
    """A copy that may be changed."""
    return {topic: dict.fromkeys(partitions) for topic, partitions in target.items()}


def target_of(draft: Draft) -> Target:
    """A changed target, in the order of a record that is read back."""
    return {topic: java_order.numbers(partitions) for topic, partitions in draft.items()}
