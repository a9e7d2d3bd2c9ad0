"""Response to ShareFetch: which rows it contains, and the leaders of partitions that are led elsewhere.

Source: ``ShareSessionContext.java``, ``KafkaApis.handleShareFetchRequest`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.share import share_acknowledgements as acks
from ottla.broker.share_partitions.share_sessions import INITIAL_EPOCH, ShareSession, TopicIdPartition
from ottla.jobs.job import Job
from ottla.wire.errors import ProtocolError
from ottla.wire.messages import share_fetch as wire


def changed_partitions(
    request: wire.ShareFetchRequest, rows: dict[TopicIdPartition, wire.PartitionData], session: ShareSession | None
) -> Job[dict[TopicIdPartition, wire.PartitionData]]:
    """Return the rows that the response must contain, as a job: all without a session or in its first response.

    In an incremental session these are partitions with records or an error, new ones, and those whose last row had an
    error.
    """
    out = {}
    for place, row in rows.items():
        if (
            session is None
            or request.share_session_epoch == INITIAL_EPOCH
            or session.must_include(place, brings=len(row.records or b"") > 0, failed=row.error_code != 0)
        ):
            out[place] = row
        yield None
    return out


def add_acknowledge_result(
    rows: dict[TopicIdPartition, wire.PartitionData], place: TopicIdPartition, answer: Any
) -> None:
    """Write the result of a partition's acknowledgements into its row, which is added if missing.

    ``answer`` is a `ProtocolError` if they were rejected.
    """
    row = rows.setdefault(place, wire.PartitionData(place.partition, records=b""))
    if isinstance(answer, ProtocolError):
        row.acknowledge_error_code, row.acknowledge_error_message = answer.code, answer.message


def build_response(
    context: RequestContext, request: wire.ShareFetchRequest, rows: dict[TopicIdPartition, wire.PartitionData]
) -> Job[wire.ShareFetchResponse]:
    """Return the response with the rows of the partitions, and the endpoints of leaders elsewhere, as a job."""
    topics: dict[bytes, list[wire.PartitionData]] = {}
    leaders: set[int] = set()
    for place, row in rows.items():
        if row.error_code in acks.LEADER_ERRORS:
            row.current_leader = wire.LeaderIdAndEpoch(*acks.leader_of(context, place))
            leaders.add(row.current_leader.leader_id)
        topics.setdefault(place.topic_id, []).append(row)
        yield None
    endpoints = context.services.metadata.endpoints(context.peer) if leaders else []
    return wire.ShareFetchResponse(
        acquisition_lock_timeout_ms=context.services.share_partition_manager.group_config.limits(
            request.group_id or ""
        ).lock_duration_ms,
        responses=[wire.ShareFetchableTopicResponse(topic_id, parts) for topic_id, parts in topics.items()],
        node_endpoints=[wire.NodeEndpoint(*each) for each in endpoints if each[0] in leaders],
    )
