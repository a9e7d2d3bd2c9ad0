"""Plans of reassignments that empty a broker or balance the cluster.

A plan has the new replicas of each partition that moves; the caller, a tool or the controller, requests the
reassignments. Racks take precedence over balance: no plan moves a replica of a partition into a rack that has another
one while another rack has a free broker.

Kafka leaves this to tools. The rules are Ottla's own; Kafka's placement of new partitions is in `replica_placer`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ottla.jobs.job import Job

T = TypeVar("T")
PlannedPartition = tuple[str, int]
"""Topic name and partition number."""
PlanSteps = Job[T]


class PlannedReassignment(NamedTuple):
    """Planned reassignment of a partition to new replicas, the preferred leader first."""

    partition: PlannedPartition
    replicas: tuple[int, ...]


class BrokerLoads:
    """Brokers that may get replicas: rack, numbers of replicas and of preferred leads (first replicas) of each."""

    def __init__(self, racks: Mapping[int, str | None]) -> None:
        self.racks = dict(racks)
        self.replicas = dict.fromkeys(racks, 0)
        self.preferred_leads = dict.fromkeys(racks, 0)

    def count(self, replicas: Sequence[int], by: int = 1) -> None:
        """Add a partition's replicas to the numbers, or with ``by`` -1 subtract them; unknown brokers are ignored."""
        for broker in replicas:
            if broker in self.replicas:
                self.replicas[broker] += by
        if replicas and replicas[0] in self.preferred_leads:
            self.preferred_leads[replicas[0]] += by

    def rack_of(self, broker: int) -> str | None:
        """Return the broker's rack, None if it has none; a broker not in `racks` is alone in a rack of its own."""
        return self.racks.get(broker, f"\x00{broker}")

    def least_loaded(self, replicas: Collection[int]) -> int | None:
        """Return the best broker for a replica in addition to ``replicas``; None if all brokers have one.

        A broker in a rack without a replica comes first, then the one with the fewest replicas.
        """
        taken = {self.rack_of(broker) for broker in replicas}
        free = [b for b in self.racks if b not in replicas]
        return min(free, key=lambda b: (self.racks[b] in taken, self.replicas[b], b), default=None)


def count_partitions(
    brokers: BrokerLoads, partitions: Iterable[tuple[PlannedPartition, Sequence[int]]]
) -> PlanSteps[BrokerLoads]:
    """Add the replicas of all partitions to the loads in ``brokers`` and return it, as a job."""
    for _, replicas in partitions:
        brokers.count(replicas)
        yield None
    return brokers


def replace_brokers(brokers: BrokerLoads, replicas: Sequence[int], gone: Collection[int]) -> tuple[int, ...] | None:
    """Return the replicas with those on ``gone`` brokers replaced in place; None if there are not enough brokers.

    Each replacement is the `least_loaded` of ``brokers``. These are those that stay, with all replicas counted; the
    replacements are counted at once, unless None is returned.
    """
    out = list(replicas)
    for place, broker in enumerate(replicas):
        if broker in gone:
            stay = [b for b in out if b not in gone]
            found = brokers.least_loaded(stay)
            if found is None:
                brokers.count(out, -1)
                brokers.count(replicas)
                return None
            brokers.count(out, -1)
            out[place] = found
            brokers.count(out)
    return tuple(out)


def drain(
    racks: Mapping[int, str | None], partitions: Mapping[PlannedPartition, Sequence[int]], leaving: Collection[int]
) -> PlanSteps[tuple[list[PlannedReassignment], list[PlannedPartition]]]:
    """Return the reassignments that move all replicas off ``leaving`` brokers, and the partitions that cannot be moved.

    A job. ``racks``: rack of each broker that may get replicas; brokers with None count as one rack. ``partitions``:
    current replicas of each partition.
    """
    brokers = BrokerLoads({b: rack for b, rack in racks.items() if b not in leaving})
    yield from count_partitions(brokers, partitions.items())
    moves: list[PlannedReassignment] = []
    stuck: list[PlannedPartition] = []
    for at in (yield from _sort_partitions(partitions)):
        replicas = partitions[at]
        yield None
        if leaving and not set(leaving).isdisjoint(replicas):
            target = replace_brokers(brokers, replicas, leaving)
            if target is None:
                stuck.append(at)
            else:
                moves.append(PlannedReassignment(at, target))
    return moves, stuck


def rebalance(
    racks: Mapping[int, str | None], partitions: Mapping[PlannedPartition, Sequence[int]]
) -> PlanSteps[list[PlannedReassignment]]:
    """Return reassignments that spread replicas over racks, then balance replicas, then preferred leaders; as a job.

    The plan is greedy: it moves few replicas, but perhaps not the fewest.

    Args:
        racks: Rack of each broker that may get replicas; brokers with None count as one rack. Others keep theirs.
        partitions: Current replicas of each partition, the preferred leader first.
    """
    brokers = BrokerLoads(racks)
    yield from count_partitions(brokers, partitions.items())
    total = sum(brokers.replicas.values())
    plan = {at: tuple(partitions[at]) for at in (yield from _sort_partitions(partitions))}
    for step in (_into_other_racks, _unload_full_brokers, _fill_empty_brokers):
        for at, replicas in plan.items():
            yield None
            plan[at] = step(brokers, replicas, total)
    for _ in range(2):  # a second pass for partitions without a better leader in the first one
        for at, replicas in plan.items():
            yield None
            plan[at] = _prefer_least_loaded_leader(brokers, replicas)
    return [PlannedReassignment(at, replicas) for at, replicas in plan.items() if replicas != tuple(partitions[at])]


def _sort_partitions(partitions: Iterable[PlannedPartition]) -> PlanSteps[list[PlannedPartition]]:
    """Return partitions in order, as a job."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
        yield None
    out: list[PlannedPartition] = []
    for topic in sorted(numbers):
        out += [(topic, number) for number in sorted(numbers[topic])]
        yield None
    return out


def _replaced(brokers: BrokerLoads, replicas: tuple[int, ...], place: int, new: int) -> tuple[int, ...]:
    out = (*replicas[:place], new, *replicas[place + 1 :])
    brokers.count(replicas, -1)
    brokers.count(out)
    return out


def _into_other_racks(brokers: BrokerLoads, replicas: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return a partition's replicas, spread over racks: one in the rack of an earlier one is moved to another.

    ``brokers`` is updated; ``total`` is unused.
    """
    for place in range(1, len(replicas)):
        before = {brokers.rack_of(b) for b in replicas[:place]}
        if brokers.rack_of(replicas[place]) not in before:
            continue
        found = brokers.least_loaded(replicas)
        if found is not None and brokers.racks[found] not in {brokers.rack_of(b) for b in replicas}:
            replicas = _replaced(brokers, replicas, place, found)
    return replicas


def _may_replace(brokers: BrokerLoads, replicas: tuple[int, ...], old: int, new: int) -> bool:
    """Return True if as many racks have a replica after ``old`` is replaced by ``new`` as before, or more."""
    others = {brokers.rack_of(b) for b in replicas if b != old}
    return brokers.racks[new] not in others or brokers.rack_of(old) in others


def _shift(brokers: BrokerLoads, replicas: tuple[int, ...], source_limit: int, target_limit: int) -> tuple[int, ...]:
    """Return a partition's replicas, moved from brokers with more than ``source_limit`` to ones below ``target_limit``.

    The limits are numbers of replicas. ``brokers`` is updated.
    """
    for place, old in enumerate(replicas):
        if brokers.replicas.get(old, 0) <= source_limit:
            continue
        free = [b for b in brokers.racks if b not in replicas and brokers.replicas[b] < target_limit]
        fit = [b for b in free if _may_replace(brokers, replicas, old, b)]
        if fit:
            replicas = _replaced(brokers, replicas, place, min(fit, key=lambda b: (brokers.replicas[b], b)))
    return replicas


def _unload_full_brokers(brokers: BrokerLoads, replicas: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return a partition's replicas, some moved off brokers above the average number of replicas, rounded up.

    ``total``: number of all replicas. ``brokers`` is updated.
    """
    most = -(-total // len(brokers.racks)) if brokers.racks else 0
    return _shift(brokers, replicas, most, most)


def _fill_empty_brokers(brokers: BrokerLoads, replicas: tuple[int, ...], total: int) -> tuple[int, ...]:
    """Return a partition's replicas, some moved from brokers above the average number of replicas to brokers below it.

    The average is ``total``, the number of all replicas, by that of brokers, rounded down. The first replica may move
    too; the replicas stay in at least as many racks. ``brokers`` is updated.
    """
    least = total // len(brokers.racks) if brokers.racks else 0
    return _shift(brokers, replicas, least, least)


def _prefer_least_loaded_leader(brokers: BrokerLoads, replicas: tuple[int, ...]) -> tuple[int, ...]:
    """Return the replicas with the one first that has the fewest preferred leads, if that improves the balance.

    ``brokers`` is updated.
    """
    known = [b for b in replicas if b in brokers.preferred_leads]
    if len(known) < len(replicas) or not known:
        return replicas
    best = min(known, key=lambda b: (brokers.preferred_leads[b], replicas.index(b)))
    if brokers.preferred_leads[best] + 1 >= brokers.preferred_leads[replicas[0]]:
        return replicas
    out = (best, *(b for b in replicas if b != best))
    brokers.count(replicas, -1)
    brokers.count(out)
    return out
