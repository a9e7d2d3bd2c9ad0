"""Member of a consumer group (KIP-848) without a background task: its caller sends heartbeats between fetches.

Source: ``ConsumerMembershipManager``, ``ConsumerHeartbeatRequestManager`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ottla.cli.common import connect_to_coordinator
from ottla.cli.group_admin.offsets import TopicPartitionKey, fetch_committed_offsets, group_by_topic
from ottla.client.cluster_client import ClusterClient
from ottla.runtime.blocking_env import BlockingEnv
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec.primitives import uuid_to_string
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import consumer_group_heartbeat, offset_commit

LEAVE, JOIN = -1, 0
REBALANCE_TIMEOUT_MS = 300_000
COMMIT_VERSION = 9
"""Version of OffsetCommit that has member epochs and topic names."""
_JOIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class GroupMember:
    """Member of a consumer group that subscribes to topics and commits offsets; the first heartbeat joins the group.

    Args:
        client: client of the cluster.
        group_id: id of the group.
        topics: topics to subscribe to.

    Attributes:
        assigned: partitions that the member may read.
    """

    def __init__(self, client: ClusterClient, group_id: str, topics: Sequence[str]) -> None:
        self._client = client
        self._group_id = group_id
        self._topics = list(topics)
        self._env = BlockingEnv()
        self._member_id = uuid_to_string(os.urandom(16))
        self._epoch = JOIN
        self._names: dict[bytes, str] = {}
        self._next_ms = 0.0
        self.assigned: set[TopicPartitionKey] = set()

    def _owned(self) -> list[consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        rows: dict[str, list[int]] = {}
        for topic, number in sorted(self.assigned):
            rows.setdefault(topic, []).append(number)
        return [
            consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(ids[topic], numbers)
            for topic, numbers in rows.items()
        ]

    async def heartbeat(self, *, force: bool = False) -> bool:
        """Send a heartbeat if one is due, or with ``force`` at once; return True if `assigned` changed.

        After UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH the member has no partitions, and the next heartbeat joins again.
        After a retriable error the heartbeat is repeated later.

        Raises:
            ProtocolError: the coordinator refused the heartbeat for another reason.
            CommandFailed: no coordinator is available.
        """
        if not force and self._env.monotonic_ms() < self._next_ms:
            return False
        is_join = self._epoch == JOIN
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            self._group_id,
            self._member_id,
            self._epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_join else -1,
            subscribed_topic_names=self._topics if is_join else None,
            topic_partitions=[] if is_join else self._owned(),
        )
        channel = await connect_to_coordinator(self._client, self._group_id)
        answer = await channel.call(request)
        code = ErrorCode(answer.error_code)
        if code in _JOIN_AGAIN:
            self._epoch, self._next_ms = JOIN, 0.0
            changed, self.assigned = bool(self.assigned), set()
            return changed
        if code and not code.retriable:
            raise ProtocolError(code, answer.error_message)
        self._next_ms = self._env.monotonic_ms() + (answer.heartbeat_interval_ms or 1000)
        if code:
            return False
        self._epoch = answer.member_epoch
        return answer.assignment is not None and await self._set_assignment(answer.assignment)

    async def _set_assignment(self, assignment: consumer_group_heartbeat.Assignment) -> bool:
        unknown = [row.topic_id for row in assignment.topic_partitions if row.topic_id not in self._names]
        if unknown:
            self._names = {topic.topic_id: topic.name or "" for topic in (await self._client.metadata(None)).topics}
        before = self.assigned
        self.assigned = {
            (self._names[row.topic_id], number)
            for row in assignment.topic_partitions
            if row.topic_id in self._names
            for number in row.partitions
        }
        self._next_ms = 0.0  # the coordinator waits for the partitions that the member owns
        return before != self.assigned

    async def committed(self) -> dict[TopicPartitionKey, int]:
        """Request the committed offsets of the group from its coordinator; return them by topic and partition.

        Raises:
            CommandFailed: the coordinator refused OffsetFetch.
        """
        channel = await connect_to_coordinator(self._client, self._group_id)
        return await fetch_committed_offsets(channel, self._group_id)

    async def commit(self, offsets: Mapping[TopicPartitionKey, int]) -> bool:
        """Commit offsets of assigned partitions; return False if the coordinator did not store all of them.

        False means that the member is not in the group, its member epoch is stale or fenced, or the error is retriable;
        the next heartbeat finds out which. The caller may commit again after it.

        Raises:
            ProtocolError: the coordinator refused an offset for another reason; others may be stored.
            CommandFailed: no coordinator is available.
        """
        topics = [
            offset_commit.OffsetCommitRequestTopic(
                topic,
                partitions=[
                    offset_commit.OffsetCommitRequestPartition(number, offset) for number, offset in rows.items()
                ],
            )
            for topic, rows in group_by_topic(offsets).items()
        ]
        if not topics:
            return True
        if self._epoch == JOIN:
            return False
        channel = await connect_to_coordinator(self._client, self._group_id)
        request = offset_commit.OffsetCommitRequest(self._group_id, self._epoch, self._member_id, topics=topics)
        answer = await channel.call(request, channel.version_for(ApiKey.OFFSET_COMMIT, COMMIT_VERSION))
        for topic in answer.topics:
            for row in topic.partitions:
                code = ErrorCode(row.error_code)
                if code.retriable or code in (*_JOIN_AGAIN, ErrorCode.STALE_MEMBER_EPOCH):
                    self._next_ms = 0.0  # the next heartbeat finds out which
                    return False
                if code:
                    raise ProtocolError(code, f"{topic.name}-{row.partition_index}: {code.text}")
        return True

    async def leave(self) -> None:
        """Leave the group by a heartbeat with epoch -1, so that its partitions are assigned at once.

        Do nothing if the member has not joined. An error code of the response is ignored.

        Raises:
            CommandFailed: no coordinator is available.
        """
        if self._epoch > JOIN:
            channel = await connect_to_coordinator(self._client, self._group_id)
            await channel.call(
                consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(self._group_id, self._member_id, LEAVE)
            )
