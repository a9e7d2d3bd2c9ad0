"""What becomes of one partition when its in-sync set, a directory or who may lead changes.

The order of the steps is Kafka's, and matters (R284-R289 of the project's list). Reassignment and preferred elections
come with clusters. Source: ``PartitionChangeBuilder.java``, ``LeaderAcceptor.java`` (apache/kafka 4.3.1; KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from ottla.controller.directories import MIGRATING
from ottla.controller.image import NO_LEADER, NO_LEADER_CHANGE, Partition
from ottla.wire.messages import metadata_records as m

RECOVERING = 1


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for a partition's topic."""

    min_isr: int = 1
    elr: bool = True
    """Whether eligible leader replicas are kept (KIP-966)."""
    unclean: bool = False
    """Whether a replica that is not in sync may lead, rather than none."""


def change(
    at: tuple[bytes, int],
    p: Partition,
    may_lead: Callable[[int], bool],
    rules: Rules,
    *,
    isr: Collection[int] | None = None,
    lost: Collection[int] = (),
    directories: Mapping[int, bytes] | None = None,
    recovery: int | None = None,
) -> m.PartitionChangeRecord | None:
    """The record that changes a partition; None where nothing does.

    ``at``: topic id and number. ``isr``: the in-sync set it shall have. ``lost``: replicas that restarted uncleanly and
    may have lost what they had. ``directories``: where replicas lie now, of those that moved. ``recovery``: whether the
    leader still recovers from an unclean election, where it says so.
    """
    record = m.PartitionChangeRecord(at[1], at[0], leader=NO_LEADER_CHANGE)
    target = list(p.isr if isr is None else isr)
    eligible = _eligible(p, target, lost, rules)
    leader, unclean = _elect(p, target, eligible, may_lead, rules)
    if leader != p.leader:
        record.leader = leader
        if leader in eligible:
            target = [leader]
            eligible = [i for i in eligible if i != leader]
        if unclean:
            record.isr = [leader]
            if p.recovering != RECOVERING:
                record.leader_recovery_state = RECOVERING
    if record.isr is not None or not rules.elr:
        eligible = []
    if eligible != list(p.elr):
        record.eligible_leader_replicas = eligible
    if record.isr is None and (target or rules.elr) and target != list(p.isr):
        record.isr = target
    if rules.elr:
        if record.leader == NO_LEADER and not p.last_known_elr:
            record.last_known_elr = [p.leader]
        elif record.leader >= 0 and p.last_known_elr:
            record.last_known_elr = []
    if directories:
        known = p.directories if len(p.directories) == len(p.replicas) else (MIGRATING,) * len(p.replicas)
        places = [directories.get(i, place) for i, place in zip(p.replicas, known, strict=True)]
        if places != list(known):
            record.directories = places
    if recovery is not None and recovery != p.recovering:
        record.leader_recovery_state = recovery
    return None if record == m.PartitionChangeRecord(at[1], at[0], leader=NO_LEADER_CHANGE) else record


def _eligible(p: Partition, target: list[int], lost: Collection[int], rules: Rules) -> list[int]:
    """Who may lead without being in sync: whoever was, while fewer are than there must be (R289)."""
    if not rules.elr:
        return list(p.elr)
    if len(target) >= rules.min_isr:
        return []
    return sorted(i for i in {*p.elr, *p.isr} if i not in target and i not in lost)


def _elect(
    p: Partition, target: list[int], eligible: list[int], may_lead: Callable[[int], bool], rules: Rules
) -> tuple[int, bool]:
    """The leader, and whether it was elected uncleanly (R287, R288)."""
    candidates = target or eligible
    for i in (p.leader, *p.replicas):
        if i in candidates and may_lead(i):
            return i, False
    if rules.elr and not candidates and len(p.last_known_elr) == 1 and may_lead(p.last_known_elr[0]):
        return p.last_known_elr[0], True
    if rules.unclean:
        for i in p.replicas:
            if may_lead(i):
                return i, True
    return NO_LEADER, False
