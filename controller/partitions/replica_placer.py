"""Placement of a new partition's replicas on brokers, striped over brokers and racks.

Brokers are in lists by rack, active ones before fenced ones. Each list, and the list of racks, has a random start that
advances by one with each partition: leaders rotate over the brokers, replicas over the racks, and many topics with one
partition spread like one topic with many. After a full round everything is shuffled, so that no two brokers share all
their partitions.

Source: ``StripedReplicaPlacer.java`` (apache/kafka 4.3.1; KIP-36).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, MutableSequence
from typing import Any

from ottla.controller.metadata.image import MetadataImage
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.metadata_records import RegisterBrokerRecord

RandomFunction = Callable[[], float]
"""Function that returns a random number in [0, 1)."""


def random_index(random: RandomFunction, count: int) -> int:
    """Return a random integer in [0, count)."""
    return int(random() * count)


def shuffle(items: MutableSequence[Any], random: RandomFunction) -> None:
    """Shuffle ``items`` in place."""
    for last in range(len(items) - 1, 0, -1):
        other = random_index(random, last + 1)
        items[last], items[other] = items[other], items[last]


def is_usable_for_placement(broker: RegisterBrokerRecord) -> bool:
    """Return True if a broker may get replicas: neither in controlled shutdown nor with all directories cordoned.

    A fenced broker is no longer in controlled shutdown (``BrokerHeartbeatManager.touch``).
    """
    cordoned = set(broker.cordoned_log_dirs or ())
    leaves = broker.in_controlled_shutdown and not broker.fenced
    return not leaves and not (broker.log_dirs and cordoned.issuperset(broker.log_dirs))


class _BrokerList:
    """Brokers of a rack in a cyclic order, fenced or unfenced ones; for each partition the start advances by one.

    ``next`` returns each broker once per partition (``epoch``), then None.
    """

    def __init__(self, brokers: Iterable[int], random: RandomFunction) -> None:
        self.brokers = sorted(brokers)
        self._offset = random_index(random, len(self.brokers)) if self.brokers else 0
        self._index = 0
        self._epoch = 0

    def next(self, epoch: int) -> int | None:
        if not self.brokers:
            return None
        if self._epoch != epoch:
            self._epoch = epoch
            self._index = 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        self._index += 1
        return self.brokers[(self._index - 1 + self._offset) % len(self.brokers)]


class _RackBrokers:
    """Usable brokers of one rack: ``next(epoch)`` returns each unfenced one, then each fenced one, then None.

    Another ``epoch`` (partition) starts again, as for `_BrokerList`.
    """

    def __init__(self, brokers: list[RegisterBrokerRecord], random: RandomFunction) -> None:
        self.fenced = _BrokerList((b.broker_id for b in brokers if b.fenced), random)
        self.unfenced = _BrokerList((b.broker_id for b in brokers if not b.fenced), random)

    def next(self, epoch: int) -> int | None:
        found = self.unfenced.next(epoch)
        return self.fenced.next(epoch) if found is None else found


def _refuse(factor: int, why: str) -> ProtocolError:
    return ProtocolError(
        ErrorCode.INVALID_REPLICATION_FACTOR, f"Unable to replicate the partition {factor} time(s): {why}"
    )


class StripedReplicaPlacer:
    """Placer of the replicas of a topic's partitions: each call of `place_next` returns those of one more partition.

    Raises:
        ProtocolError: INVALID_REPLICATION_FACTOR: too few usable brokers, or all are fenced.
    """

    def __init__(self, image: MetadataImage, replication_factor: int, random: RandomFunction) -> None:
        usable = [b for b in image.brokers.values() if is_usable_for_placement(b)]
        self._unfenced = sum(not b.fenced for b in usable)
        self._factor = replication_factor
        if self._unfenced == 0:
            why = "All brokers are currently fenced, or have all their log directories cordoned."
            raise _refuse(replication_factor, why)
        if replication_factor > len(usable):
            raise _refuse(
                replication_factor,
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{len(usable)} broker(s) are registered or some brokers have all their log directories cordoned.",
            )
        names = sorted({b.rack for b in usable}, key=lambda rack: (rack is not None, rack or ""))
        self._racks = [_RackBrokers([b for b in usable if b.rack == name], random) for name in names]
        self._random = random
        self._epoch = 0
        self._offset = random_index(random, len(self._racks))

    def place_next(self) -> list[int]:
        """Return the broker ids of the next partition's replicas; the first (preferred leader) is unfenced."""
        racks = self._racks
        if self._epoch == self._unfenced and self._unfenced > 1:
            self._shuffle()
        self._offset %= len(racks)
        first_rack = self._offset
        while (found := racks[first_rack].unfenced.next(self._epoch)) is None:
            first_rack = (first_rack + 1) % len(racks)
        replicas = [found]
        rack = self._offset
        skipped = False
        while len(replicas) < self._factor:
            if rack == first_rack and not skipped:
                skipped = True  # this rack has the first replica; in the next round it gets another
            else:
                other = racks[rack].next(self._epoch)
                if other is not None:
                    replicas.append(other)
            rack = (rack + 1) % len(racks)
        self._epoch += 1
        self._offset += 1
        return replicas

    def _shuffle(self) -> None:
        shuffle(self._racks, self._random)
        for rack in self._racks:
            shuffle(rack.fenced.brokers, self._random)
            shuffle(rack.unfenced.brokers, self._random)
        self._epoch = 0
