"""Update of the replication quota and the fetch session of a follower, once the response to its Fetch is built.

Source: ``ReplicaManager.scala``, ``FetchSession.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.fetch_sessions.fetch_session import CachedPartition, FetchContext
from ottla.broker.handlers.fetch.delayed_fetch import PARTITIONS_PER_STEP
from ottla.broker.handlers.fetch.fetch_params import FetchParams
from ottla.jobs.job import Job
from ottla.wire.messages.fetch import PartitionData

if TYPE_CHECKING:
    from ottla.broker.fetch_sessions.follower_session import PartitionChangeListener
    from ottla.broker.quotas.replication_quota import ReplicationQuota


def _record_throttled_bytes(context: RequestContext, throttle: ReplicationQuota, rows: Any) -> Job[None]:
    """Record a follower's bytes from throttled partitions against the leader replication quota, as a job."""
    now = context.services.env.monotonic_ms()
    for number, (want, row) in enumerate(rows, 1):
        if number % PARTITIONS_PER_STEP == 0:
            yield None
        if len(row.records) and throttle.is_throttled(context.image, want.topic, want.partition):
            throttle.record(len(row.records), now)


def _register_listener(
    context: RequestContext, broker: int, want: CachedPartition, row: PartitionData, listener: PartitionChangeListener
) -> bool:
    """Register a follower's session for the next change of a partition that it has read to the end; return True.

    Return False, with nothing registered, unless this node leads the partition, the follower is in the ISR, which has
    no pending change, and the partition has not changed since the read.
    """
    replica = context.services.replica_manager.get(want.topic, want.partition) if want.topic is not None else None
    if replica is None:
        return False
    return replica.register_listener(broker, want.fetch_offset, row.high_watermark, row.log_start_offset, listener)


def update_follower_session(
    context: RequestContext, reader: FetchParams, session: FetchContext, rows: Any
) -> Job[None]:
    """Exempt a follower's request from the request quota, record its throttled bytes, update its session, as a job.

    ``rows`` are the partitions that were read, with their rows; very large requests have no list and no session.
    """
    if context.peer.request_timer is not None:
        context.peer.request_timer.is_exempt = True
    # very large requests have no session
    if reader.quota is not None and isinstance(rows, list):
        yield from _record_throttled_bytes(context, reader.quota, rows)
    if session.session is not None and session.is_session_owner:
        watch = partial(_register_listener, context, reader.replica_id)
        yield from session.session.on_response(rows, watch, context.services.purgatory.check_and_complete)
