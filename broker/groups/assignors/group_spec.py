"""Input and output of an assignor.

Source: ``GroupSpecImpl.java``, ``SubscribedTopicDescriberImpl.java``, ``ConsumerGroupPartitionAssignor`` (apache/kafka
4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from ottla.broker.groups.java_collections import iteration_order

Assignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, in the order Java would have them."""
MutableAssignment = dict[bytes, dict[int, None]]
"""A target that is being changed."""
EMPTY_ASSIGNMENT: Assignment = {}
PARTITIONS_PER_STEP = 500
"""So many partitions, or topics, are looked at in one step."""

AssignmentJob = Generator[None, None, dict[str, Assignment]]
"""Job that computes targets by member; members not in it have none."""


class PartitionAssignorException(Exception):
    """The targets so far cannot be gone on from: a member of the older protocol brought them along."""


class MemberSubscriptionAndAssignment(NamedTuple):
    """Subscription and assignment of a member: ids of existing topics, number of subscribed names, current target."""

    topics: tuple[bytes, ...]
    subscribed_name_count: int
    assignment: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """A group: members in the order Kafka looks at them, whether all want the same, partitions of each topic."""

    members: Mapping[str, MemberSubscriptionAndAssignment]
    homogeneous: bool
    partitions: Mapping[bytes, int]


def mutable_copy(target: Assignment) -> MutableAssignment:
    """Return a mutable copy of a target."""
    return {topic: dict.fromkeys(partitions) for topic, partitions in target.items()}


def freeze_assignment(draft: MutableAssignment) -> Assignment:
    """Return the target as an immutable assignment, ordered like one that is decoded from a record."""
    return {topic: iteration_order.integer_hash_set_order(partitions) for topic, partitions in draft.items()}
