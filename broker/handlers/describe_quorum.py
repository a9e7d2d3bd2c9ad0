"""DescribeQuorum (55), v0-2: leader, voters and observers of the metadata log.

Behaviour: exactly one partition may be asked for, `__cluster_metadata`-0; any other list gets error 3 for each of its
partitions. A quorum of one is always caught up: the leader's own times are now.

Source: ``KafkaRaftClient.handleDescribeQuorumRequest``, ``DescribeQuorumRequest.java`` (apache/kafka 4.3.1).

From KIP-595; directory ids and listeners from v2: KIP-853.
"""

from __future__ import annotations

from ottla.broker.server.dispatch import Answer, Context
from ottla.log.directory import METADATA_TOPIC
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import describe_quorum as m
from ottla.wire.schema import ZERO_UUID


def _is_metadata_log(request: m.DescribeQuorumRequest) -> bool:
    return [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics] == [
        (METADATA_TOPIC, [0])
    ]


def handle(context: Context, request: m.DescribeQuorumRequest) -> Answer:
    """Answer for the quorum of one."""
    response = m.DescribeQuorumResponse()
    if not _is_metadata_log(request):
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
        for topic in request.topics:
            rows = [m.DescribeQuorumResponsePartitionData(p.partition_index, code, why) for p in topic.partitions]
            response.topics.append(m.DescribeQuorumResponseTopicData(topic.topic_name, rows))
        return response
    controller = context.services.controller
    end = controller.log_end_offset
    directory_id = controller.directory_id if context.version >= 2 else ZERO_UUID
    voter = m.ReplicaState(controller.node_id, directory_id, end, context.now_ms, context.now_ms)
    row = m.DescribeQuorumResponsePartitionData(
        0,
        leader_id=controller.node_id,
        leader_epoch=controller.epoch,
        high_watermark=end,
        current_voters=[voter],
    )
    response.topics = [m.DescribeQuorumResponseTopicData(METADATA_TOPIC, [row])]
    if context.version < 2:
        return response
    registered = context.image.controllers.get(controller.node_id)
    ends = [] if registered is None else registered.end_points
    response.nodes = [m.Node(controller.node_id, [m.Listener(e.name, e.host, e.port) for e in ends])]
    return response
