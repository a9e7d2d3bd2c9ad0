"""Parameters of the reader of a Fetch, their effect on its reads, and the check of its position for divergence.

Source: ``FetchParams.java``, ``FetchIsolation.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition, FetchContext
from ottla.broker.replication.hosted_partition import HostedPartition
from ottla.broker.replication.partition_state import LeaderState
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.fetch import EpochEndOffset, FetchRequest

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SELECTOR_KEY = "replica.selector.class"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
FUTURE_REPLICA = -3
"""Replica id of a future log in Kafka, which reads the local log only."""
ANY_REPLICA_SINCE = 11
"""First Fetch version in which consumers may read from followers."""


@dataclass(frozen=True, slots=True)
class FetchParams:
    """Parameters of the reader of a Fetch: replica id of a follower, isolation level, rack and replication quota.

    With slots, as it is read for each partition.
    """

    read_committed: bool
    leader_only: bool
    replica_id: int
    """Broker id of the follower; -1 for a consumer."""
    broker_epoch: int
    client_rack: str = ""
    """Rack of the consumer, for fetching from the closest replica."""
    broker_racks: Mapping[int, str | None] = field(default_factory=dict)
    """Racks by id of the brokers with an endpoint on the consumer's listener; a rack is None if not configured."""
    quota: Any = None
    """Leader replication quota (`ReplicationQuota`) for throttled followers; None for consumers and without a limit."""

    def last_fetchable_offset(self, replica: HostedPartition) -> int:
        """Return the exclusive upper limit of readable offsets in the local log.

        It is the log end offset for a follower, the last stable offset with ``read_committed``, else the high
        watermark.
        """
        log = replica.log
        if self.replica_id >= 0:
            return log.log_end_offset
        return log.last_stable_offset if self.read_committed else log.high_watermark

    def is_throttled(self, context: RequestContext, replica: HostedPartition) -> bool:
        """Return whether the leader replication quota withholds the records of ``replica`` from a follower (R-341).

        That is so for a follower outside the ISR and a throttled partition while the quota is exceeded.
        """
        throttle, state, image = self.quota, replica.state, context.image
        return (
            throttle is not None
            and type(state) is LeaderState
            and self.replica_id not in state.committed_isr
            and throttle.is_throttled(image, replica.topic, replica.partition)
            and throttle.is_exceeded(image, context.services.env.monotonic_ms())
        )


def is_consumer(params: FetchParams, request: FetchRequest) -> bool:
    """Return whether a fetch comes neither from a follower nor from a move between log directories (`FUTURE_REPLICA`).

    Source: ``FetchParams.isFromFuture`` (apache/kafka 4.3.1).
    """
    return params.replica_id < 0 and FUTURE_REPLICA not in (request.replica_id, request.replica_state.replica_id)


CONSUMER_FETCH_PARAMS = {
    (committed, leader_only): FetchParams(committed, leader_only, -1, -1)
    for committed in (False, True)
    for leader_only in (False, True)
}


def resolve_fetch_params(
    context: RequestContext, request: FetchRequest, session: FetchContext, plain: FetchParams
) -> FetchParams:
    """Return the parameters of a follower or of a consumer with a rack.

    ``plain`` are those of a consumer without a rack; they are returned for a consumer with one, too, unless
    ``replica.selector.class`` is the rack-aware selector and the version (11 or later) lets it read from followers.
    """
    if session.is_follower:
        state, throttle = request.replica_state, context.services.replica_manager.leader_quota
        held = None if throttle.bytes_per_second(context.image) is None else throttle
        broker = max(request.replica_id, state.replica_id)
        return FetchParams(False, True, broker, state.replica_epoch, quota=held)
    if plain.leader_only or context.services.config.text(SELECTOR_KEY) != RACK_AWARE_SELECTOR:
        return plain
    racks = {x[0]: x[3] for x in context.services.metadata.endpoints(context.peer)}
    return replace(plain, client_rack=request.rack_id, broker_racks=racks)


def diverging_epoch(replica: HostedPartition, want: CachedPartition) -> EpochEndOffset | None:
    """Return the epoch and end offset of this log to which the reader has to truncate (KIP-595); None if it need not.

    The epoch is the largest in the log that is not above the reader's last fetched epoch, which must not be -1; if the
    log has only later ones, it is that epoch itself.

    Raises:
        ProtocolError: OFFSET_OUT_OF_RANGE: the fetch offset is below the log start, or this log cannot have the
            reader's last epoch.
    """
    log = replica.log
    epoch, end = log.epochs.end_offset_for(want.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end < 0 or want.fetch_offset < log.log_start_offset:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < want.last_fetched_epoch or end < want.fetch_offset:
        return EpochEndOffset(epoch, end)
    return None
