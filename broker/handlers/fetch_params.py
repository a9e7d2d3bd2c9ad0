"""Parameters of a Fetch request: which replica or consumer reads, and how far.

Source: ``FetchParams.java``, ``FetchIsolation.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.broker.replica.partition import Leading
from ottla.broker.replica.replica import Replica
from ottla.broker.server.dispatch import RequestContext
from ottla.broker.server.session import CachedPartition, FetchContext
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.fetch import EpochEndOffset, FetchRequest

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SELECTOR = "replica.selector.class"
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
ANY_REPLICA_SINCE = 11
"""Consumers of this version on may read from followers."""


@dataclass(frozen=True, slots=True)
class FetchParams:
    """Replica id and isolation of a fetch. Slots: each partition of each fetch looks at it."""

    committed: bool
    leader_only: bool
    follower: int
    """Its broker id; -1 for a consumer."""
    broker_epoch: int
    rack: str = ""
    """Where it wants to be sent to a replica of its own rack: its rack."""
    racks: Mapping[int, str | None] = field(default_factory=dict)
    """Of the brokers it can reach."""
    throttle: Any = None
    """A `Throttle`, where followers that are behind may be held back."""

    def last_fetchable_offset(self, replica: Replica) -> int:
        """Return the first offset that the reader does not get now."""
        log = replica.log
        if self.follower >= 0:
            return log.log_end_offset
        return log.last_stable_offset if self.committed else log.high_watermark

    def is_held_back(self, context: RequestContext, replica: Replica) -> bool:
        """Whether a follower gets no records of a partition for now (R341)."""
        throttle, state, image = self.throttle, replica.state, context.image
        return (
            throttle is not None
            and type(state) is Leading
            and self.follower not in state.in_sync
            and throttle.names(image, replica.topic, replica.partition)
            and throttle.is_over(image, context.services.env.monotonic_ms())
        )


CONSUMERS = {
    (committed, leader_only): FetchParams(committed, leader_only, -1, -1)
    for committed in (False, True)
    for leader_only in (False, True)
}


def fetch_params(
    context: RequestContext, request: FetchRequest, session: FetchContext, plain: FetchParams
) -> FetchParams:
    """A follower, or a consumer that says where it is; ``plain``: what it would be if it did not."""
    if session.is_follower:
        state, throttle = request.replica_state, context.services.replica_manager.leader_throttle
        held = None if throttle.bytes_a_second(context.image) is None else throttle
        broker = max(request.replica_id, state.replica_id)
        return FetchParams(False, True, broker, state.replica_epoch, throttle=held)
    if plain.leader_only or context.services.config.text(SELECTOR) != RACK_AWARE:
        return plain
    racks = {x[0]: x[3] for x in context.services.metadata.endpoints(context.peer)}
    return replace(plain, rack=request.rack_id, racks=racks)


def diverging_epoch(replica: Replica, want: CachedPartition) -> EpochEndOffset | None:
    """Where the leader's log ends for the epoch the reader saw last, if the reader's log goes on beyond it."""
    log = replica.log
    epoch, end = log.epochs.end_offset_for(want.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end < 0 or want.fetch_offset < log.log_start_offset:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < want.last_fetched_epoch or end < want.fetch_offset:
        return EpochEndOffset(epoch, end)
    return None
