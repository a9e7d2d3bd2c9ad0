"""Builder of a partition's change record, after a change of its ISR, replicas, directories or live brokers.

The order of the steps is Kafka's, and matters (R-284 to R-289, R-296): a completed reassignment ends, the eligible
leader replicas are computed, a leader is elected, and only then the fields of the record are known. Source:
``PartitionChangeBuilder.java``, ``LeaderAcceptor.java`` (apache/kafka 4.3.1; KIP-455, KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from ottla.controller.metadata.directory_id import MIGRATING
from ottla.controller.metadata.image import NO_LEADER, NO_LEADER_CHANGE, PartitionRegistration
from ottla.controller.partitions.reassignment_state import Reassignment, complete_reassignment
from ottla.wire.messages.metadata_records import PartitionChangeRecord

LEADER_RECOVERING = 1


class PartitionElection(Enum):
    """Type of leader election."""

    ONLINE = "online"
    """The current leader if it is alive and in sync, else the first such replica (with an empty ISR: ELR member)."""
    PREFERRED = "preferred"
    """As ONLINE, but the preferred leader (first replica) comes before the current one."""
    UNCLEAN = "unclean"
    """As ONLINE; without a candidate, the first live replica."""


@dataclass(frozen=True, slots=True)
class PartitionChangeRules:
    """Settings of a topic that changes of its partitions depend on: minimum ISR, ELR, unclean election."""

    min_isr: int = 1
    is_elr_enabled: bool = True
    """True if eligible leader replicas are recorded (KIP-966)."""
    allows_unclean_election: bool = False
    """True if any replica may become leader when none in the ISR (or ELR) is alive.

    With ELRs, if ISR and ELR are empty, the last known leader, if alive, is elected in any case.
    """

    @property
    def default_election(self) -> PartitionElection:
        """Type of election after a change that names none: UNCLEAN if the topic allows it, else ONLINE."""
        return PartitionElection.UNCLEAN if self.allows_unclean_election else PartitionElection.ONLINE


def build_partition_change(
    topic_id_partition: tuple[bytes, int],
    registration: PartitionRegistration,
    may_lead: Callable[[int], bool],
    rules: PartitionChangeRules,
    *,
    election: PartitionElection | None = None,
    isr: Collection[int] | None = None,
    move: Reassignment | None = None,
    lost: Collection[int] = (),
    directories: Mapping[int, bytes] | None = None,
    recovery: int | None = None,
) -> PartitionChangeRecord | None:
    """Return the record that changes a partition and elects a leader; None if nothing changes.

    Args:
        topic_id_partition: Topic id and partition number.
        registration: Current state of the partition.
        may_lead: Returns True for the id of a broker that is alive and may lead.
        rules: Settings of the topic.
        election: Type of election; None for the topic's default.
        isr: New ISR; None if unchanged.
        move: New replicas, adding and removing ones; None if unchanged.
        lost: Replicas after an unclean shutdown, which may have lost records.
        directories: New directory ids by broker id.
        recovery: Leader recovery state reported by the leader; None if unchanged.
    """
    topic_id, number = topic_id_partition
    record = PartitionChangeRecord(number, topic_id, leader=NO_LEADER_CHANGE)
    move = move or Reassignment(registration.replicas, registration.adding, registration.removing)
    target = list(registration.isr if isr is None else isr)
    end = complete_reassignment(move, target)
    if end is not None:
        move, target = Reassignment(end.replicas), list(end.isr)
    # removed replicas lose their log
    eligible = [i for i in _eligible(registration, target, lost, rules) if i in move.replicas]
    wanted = election or rules.default_election
    leader, unclean = _elect(registration, move.replicas, _Candidates(target, eligible, may_lead), rules, wanted)
    if leader != registration.leader:
        record.leader = leader
        if leader in eligible:
            target = [leader]
            eligible = [i for i in eligible if i != leader]
        if unclean:
            record.isr = [leader]
            if registration.recovering != LEADER_RECOVERING:
                record.leader_recovery_state = LEADER_RECOVERING
    if record.leader == NO_LEADER_CHANGE and not set(registration.replicas) <= set(move.replicas):
        record.leader = registration.leader  # a new leader epoch makes the removed broker notice
    _set_isr_and_elr(record, registration, target, eligible, rules)
    if rules.is_elr_enabled:
        _set_former_leader_elr(record, registration, move)
    _set_replicas_and_directories(record, registration, move, directories or {})
    if recovery is not None and recovery != registration.recovering:
        record.leader_recovery_state = recovery
    return None if record == PartitionChangeRecord(number, topic_id, leader=NO_LEADER_CHANGE) else record


def _eligible(
    p: PartitionRegistration, target: list[int], lost: Collection[int], rules: PartitionChangeRules
) -> list[int]:
    """Return the new ELR: former ISR and ELR members that are not in ``target``, if that is below the minimum (R-289).

    Without the ELR feature the present ELR is returned. ``target``: new ISR; ``lost``: replicas after an unclean
    shutdown, which are left out.
    """
    if not rules.is_elr_enabled:
        return list(p.elr)
    if len(target) >= rules.min_isr:
        return []
    return sorted(i for i in {*p.elr, *p.isr} if i not in target and i not in lost)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Candidates of an election: new ISR, eligible leader replicas (ELR), and which brokers are alive."""

    isr: list[int]
    eligible: list[int]
    is_alive: Callable[[int], bool]

    def can_lead_cleanly(self, broker_id: int) -> bool:
        """Return True if a broker is alive and in the ISR, or ELR if the ISR is empty: no data is lost (R-287)."""
        return broker_id in (self.isr or self.eligible) and self.is_alive(broker_id)


def _elect(
    p: PartitionRegistration,
    replicas: Collection[int],
    among: _Candidates,
    rules: PartitionChangeRules,
    election: PartitionElection,
) -> tuple[int, bool]:
    """Return the broker id of the elected leader (-1: none), and True if the election was unclean (R-288).

    The order of the candidates is leader, then ``replicas``; with PREFERRED the first replica comes before the leader.
    With ELRs, if ISR and ELR are empty, the last known leader, if alive, is elected in any case, which is unclean.
    """
    in_order = [p.leader, *replicas]
    if election is PartitionElection.PREFERRED:
        first, *others = replicas
        in_order = [first, p.leader, *others]
    for i in in_order:
        if among.can_lead_cleanly(i):
            return i, False
    known = p.last_known_elr
    if rules.is_elr_enabled and not among.isr and not among.eligible and len(known) == 1 and among.is_alive(known[0]):
        return known[0], True
    if election is PartitionElection.UNCLEAN:
        for i in replicas:
            if among.is_alive(i):
                return i, True
    return NO_LEADER, False


def _set_isr_and_elr(
    record: PartitionChangeRecord,
    p: PartitionRegistration,
    target: list[int],
    eligible: list[int],
    rules: PartitionChangeRules,
) -> None:
    """Set the record's ISR and ELR, if changed; after an unclean election the ELR is empty.

    Without the ELR feature the ELR is empty as well, and an ISR never becomes empty.
    """
    if record.isr is not None or not rules.is_elr_enabled:
        eligible = []
    if eligible != list(p.elr):
        record.eligible_leader_replicas = eligible
    if record.isr is None and (target or rules.is_elr_enabled) and target != list(p.isr):
        record.isr = target


def _set_former_leader_elr(record: PartitionChangeRecord, p: PartitionRegistration, move: Reassignment) -> None:
    """Set or clear the record's last known ELR: it has the last leader of a partition that becomes leaderless.

    Never a broker that is removed in the same change or before: Kafka sets it, and its controllers then fail at the
    next change of such a partition.
    """
    stay = {NO_LEADER, *move.replicas}
    if record.leader == NO_LEADER and not p.last_known_elr:
        if p.leader in stay:
            record.last_known_elr = [p.leader]
    elif p.last_known_elr and (record.leader >= 0 or not stay.issuperset(p.last_known_elr)):
        record.last_known_elr = []


def _set_replicas_and_directories(
    record: PartitionChangeRecord, p: PartitionRegistration, move: Reassignment, moved: Mapping[int, bytes]
) -> None:
    """Set the record's replicas, adding and removing replicas, and directories, where they differ from ``p``.

    ``moved``: new directory ids by broker id.
    """
    known = p.directories if len(p.directories) == len(p.replicas) else (MIGRATING,) * len(p.replicas)
    lie_at = {**dict(zip(p.replicas, known, strict=True)), **moved}
    places = [lie_at[i] for i in move.replicas]
    if places != list(known):
        record.directories = places
    if move.replicas != p.replicas:
        record.replicas = list(move.replicas)
    if move.removing != p.removing:
        record.removing_replicas = list(move.removing)
    if move.adding != p.adding:
        record.adding_replicas = list(move.adding)
