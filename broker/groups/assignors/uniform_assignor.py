"""Uniform assignor: an even assignment that keeps current partitions where possible.

Here for equal subscriptions; for different ones it is in `uniform_heterogeneous_assignor`.

Source: ``UniformAssignor.java``, ``UniformHomogeneousAssignmentBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.groups.assignors.group_spec import (
    PARTITIONS_PER_STEP,
    Assignment,
    AssignmentJob,
    GroupSpec,
    MemberSubscriptionAndAssignment,
    MutableAssignment,
    PartitionAssignorException,
    freeze_assignment,
    mutable_copy,
)
from ottla.broker.groups.assignors.uniform_heterogeneous_assignor import assign_heterogeneous
from ottla.broker.groups.java_collections import iteration_order


def assign_uniform(spec: GroupSpec) -> AssignmentJob:
    """Return a job that computes the uniform target assignment by member id, for equal or different subscriptions.

    Raises:
        PartitionAssignorException: by the job: the current targets do not fit the topics, such as a partition that does
            not exist.
    """
    if spec.homogeneous:
        return _homogeneous(spec)
    return assign_heterogeneous(spec)


class _Quotas:
    """Partitions per member: ``least``; ``extra`` members get one more. `_retained_assignment` reduces ``extra``."""

    def __init__(self, partitions: int, members: int) -> None:
        self.least, self.extra = divmod(partitions, members)


def _homogeneous(spec: GroupSpec) -> AssignmentJob:
    first = next(iter(spec.members.values()), None)
    if first is None or not first.topics:
        return {}
    topics = iteration_order.uuid_hash_map_order(first.topics, copied_from=first.subscribed_name_count)
    yield
    free = yield from _unassigned_partitions(spec, topics)
    quotas = _Quotas(sum(spec.partitions[topic] for topic in topics), len(spec.members))
    wanted, out, drafts = set(topics), dict[str, Assignment](), dict[str, MutableAssignment]()
    hungry: list[tuple[str, int]] = []
    left = len(spec.members)
    for member_id, claim in spec.members.items():
        draft, quota = _retained_assignment(claim, wanted, quotas, left, free)
        left -= 1
        if draft is None:
            out[member_id] = claim.assignment
        else:
            drafts[member_id] = draft
        if quota > 0:
            hungry.append((member_id, quota))
        yield
    at = 0
    for member_id, quota in hungry:
        if member_id not in drafts:
            drafts[member_id] = mutable_copy(out[member_id])
        for topic, partition in free[at : at + quota]:
            drafts[member_id].setdefault(topic, {})[partition] = None
        at += quota
        yield
    if at < len(free):
        raise PartitionAssignorException("Partitions were left unassigned")
    for member_id, draft in drafts.items():
        out[member_id] = freeze_assignment(draft)
        yield
    return out


def _unassigned_partitions(spec: GroupSpec, topics: list[bytes]) -> Generator[None, None, list[tuple[bytes, int]]]:
    """Return the partitions that no member is assigned, topic by topic, as a job."""
    taken: dict[bytes, set[int]] = {topic: set() for topic in topics}
    yield
    for claim in spec.members.values():
        for topic, partitions in claim.assignment.items():
            if topic in taken:
                taken[topic].update(partitions)
        yield
    free: list[tuple[bytes, int]] = []
    for topic in topics:
        for first in range(0, spec.partitions[topic], PARTITIONS_PER_STEP):
            numbers = range(first, min(first + PARTITIONS_PER_STEP, spec.partitions[topic]))
            free.extend((topic, number) for number in numbers if number not in taken[topic])
            yield
    return free


def _retained_assignment(
    claim: MemberSubscriptionAndAssignment,
    wanted: set[bytes],
    quotas: _Quotas,
    left: int,
    free: list[tuple[bytes, int]],
) -> tuple[MutableAssignment | None, int]:
    """Return the partitions that a member retains (None: all) and how many more it is to be assigned.

    Args:
        claim: the member's subscription and current target assignment.
        wanted: ids of the subscribed topics.
        quotas: quota per member; ``extra`` is reduced if this member gets an extra partition.
        left: number of members from this one on.
        free: unassigned partitions, to which revoked partitions are appended.
    """
    draft: MutableAssignment | None = None
    has_extra = quotas.extra > 0
    quota = quotas.least + has_extra
    for topic, partitions in claim.assignment.items():
        if topic in wanted and len(partitions) <= quota:
            quota -= len(partitions)
            continue
        if draft is None:
            draft = mutable_copy(claim.assignment)
        if topic not in wanted:
            del draft[topic]
            continue
        for partition in partitions[quota:]:
            del draft[topic][partition]
            free.append((topic, partition))
        if not draft[topic]:
            del draft[topic]
        quota = 0
    if quota > 0 and has_extra and left > quotas.extra:
        quota -= 1  # leave the extra partition to another member
        has_extra = False
    quotas.extra -= has_extra
    return draft, quota
