"""The uniform assignor where all want the same: everybody gets equally much, and keeps what it has if it can.

Source: ``UniformAssignor.java``, ``UniformHomogeneousAssignmentBuilder.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.broker.groups import java_order
from ottla.broker.groups.assignors.spec import (
    ROWS_AN_ID,
    STEP,
    Assigning,
    Claim,
    Draft,
    Spec,
    Target,
    Unassignable,
    draft_of,
    steps,
    target_of,
)


def assign(spec: Spec) -> Assigning:
    """Give everything out evenly."""
    if spec.homogeneous:
        return _homogeneous(spec)
    from ottla.broker.groups.assignors.heterogeneous import assign as assign_differing

    return assign_differing(spec)


class _Quotas:
    """How many partitions each member may have; so many of them get one more."""

    def __init__(self, partitions: int, members: int) -> None:
        self.least, self.extra = divmod(partitions, members)


def _homogeneous(spec: Spec) -> Assigning:
    first = next(iter(spec.members.values()), None)
    if first is None or not first.topics:
        return {}
    topics = java_order.ids(first.topics, copied_from=first.named)
    yield from steps(ROWS_AN_ID * len(topics))
    free = yield from _free(spec, topics)
    quotas = _Quotas(sum(spec.partitions[topic] for topic in topics), len(spec.members))
    wanted, out, drafts = set(topics), dict[str, Target](), dict[str, Draft]()
    hungry: list[tuple[str, int]] = []
    left = len(spec.members)
    for member_id, claim in spec.members.items():
        draft, quota = _kept(claim, wanted, quotas, left, free)
        left -= 1
        if draft is None:
            out[member_id] = claim.target
        else:
            drafts[member_id] = draft
        if quota > 0:
            hungry.append((member_id, quota))
        yield from steps(ROWS_AN_ID * len(claim.target))
    at = 0
    for member_id, quota in hungry:
        if member_id not in drafts:
            drafts[member_id] = draft_of(out[member_id])
        for topic, partition in free[at : at + quota]:
            drafts[member_id].setdefault(topic, {})[partition] = None
        at += quota
        yield from steps(quota)
    if at < len(free):
        raise Unassignable("Partitions were left unassigned")
    for member_id, draft in drafts.items():
        out[member_id] = target_of(draft)
        yield from steps(ROWS_AN_ID * len(draft))
    return out


def _free(spec: Spec, topics: list[bytes]) -> Generator[None, None, list[tuple[bytes, int]]]:
    """The partitions nobody has, topic by topic."""
    taken: dict[bytes, set[int]] = {topic: set() for topic in topics}
    yield from steps(ROWS_AN_ID * len(topics))
    for claim in spec.members.values():
        for topic, partitions in claim.target.items():
            if topic in taken:
                taken[topic].update(partitions)
        yield from steps(len(claim.target))
    free: list[tuple[bytes, int]] = []
    for topic in topics:
        for first in range(0, spec.partitions[topic], STEP):
            numbers = range(first, min(first + STEP, spec.partitions[topic]))
            free.extend((topic, number) for number in numbers if number not in taken[topic])
            yield
    return free


def _kept(
    claim: Claim, wanted: set[bytes], quotas: _Quotas, left: int, free: list[tuple[bytes, int]]
) -> tuple[Draft | None, int]:
    """What a member keeps, None for all it has, and how much more it may have; what it gives up goes to ``free``."""
    draft: Draft | None = None
    has_extra = quotas.extra > 0
    quota = quotas.least + has_extra
    for topic, partitions in claim.target.items():
        if topic in wanted and len(partitions) <= quota:
            quota -= len(partitions)
            continue
        if draft is None:
            draft = draft_of(claim.target)
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
        quota -= 1  # somebody else may have the one more
        has_extra = False
    quotas.extra -= has_extra
    return draft, quota
