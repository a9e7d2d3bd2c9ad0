"""Input and output of the server-side assignors of consumer groups.

Source: ``GroupSpecImpl.java``, ``SubscribedTopicDescriberImpl.java``, ``ConsumerGroupPartitionAssignor`` (apache/kafka
4.3.1), KIP-848.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import NamedTuple

from ottla.broker.groups.java_collections import iteration_order

Assignment = Mapping[bytes, tuple[int, ...]]
"""Assigned partitions by topic id, in the iteration order of Kafka's Java collections."""
MutableAssignment = dict[bytes, dict[int, None]]
"""Target assignment of a member under construction: topic id -> partition -> None (an ordered set)."""
EMPTY_ASSIGNMENT: Assignment = {}
PARTITIONS_PER_STEP = 500
"""Partitions or topics that an assignor processes in one step."""

AssignmentJob = Generator[None, None, dict[str, Assignment]]
"""Job that returns the target assignment by member id; a member that is not in it is assigned no partitions."""


class PartitionAssignorException(Exception):
    """No assignor has the name, or it cannot continue from the current target (such as one with an unknown partition).

    A member of the classic protocol may have brought such a target into the group.
    """


class MemberSubscriptionAndAssignment(NamedTuple):
    """Member as input of an assignor: ids of existing subscribed topics, number of subscribed names, current target."""

    topics: tuple[bytes, ...]
    subscribed_name_count: int
    assignment: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """Subscriptions and current target assignments of a group's members, as the input of a server-side assignor.

    The members are in the iteration order of Kafka's maps. ``homogeneous`` is True if all members subscribe to the same
    topics. ``partitions`` has the number of partitions of each subscribed topic, by topic id.
    """

    members: Mapping[str, MemberSubscriptionAndAssignment]
    homogeneous: bool
    partitions: Mapping[bytes, int]


def mutable_copy(target: Assignment) -> MutableAssignment:
    """Return a mutable copy of a member's target assignment."""
    return {topic: dict.fromkeys(partitions) for topic, partitions in target.items()}


def freeze_assignment(draft: MutableAssignment) -> Assignment:
    """Return a target assignment in its final form: partitions, but not topics, in the order of a decoded record."""
    return {topic: iteration_order.integer_hash_set_order(partitions) for topic, partitions in draft.items()}
