"""Consumer of several partitions, assigned by its caller, by one Fetch request for each leader; it joins no group."""

from __future__ import annotations

from typing import NamedTuple

from ottla.cli.group_admin.offsets import TopicPartitionKey
from ottla.client.channel import Channel
from ottla.client.cluster_client import ClusterClient
from ottla.client.record_decoding import decode_committed
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages import fetch
from ottla.wire.record_batch.records import Record

LAST_VERSION_WITH_NAMES = 12
PARTITION_BYTES, FETCH_BYTES = 1 << 20, 50 << 20


class ReadRecord(NamedTuple):
    """Record that was read from a partition; ``has_append_time``: its timestamp is the log append time."""

    topic: str
    partition: int
    record: Record
    has_append_time: bool


class PartitionFetcher:
    """Reader of the partitions in ``positions``, each from its position on.

    Args:
        client: client of the cluster.
        reset_timestamp: timestamp of ListOffsets for a partition whose position is out of range: -2 earliest, -1
            latest.
        committed: True for isolation level read_committed.

    Attributes:
        positions: next offset of each partition that is read; callers add and remove partitions.
    """

    def __init__(self, client: ClusterClient, reset_timestamp: int, *, committed: bool) -> None:
        self._client = client
        self._reset_timestamp = reset_timestamp
        self._committed = committed
        self.positions: dict[TopicPartitionKey, int] = {}

    async def start(self, topic_partition: TopicPartitionKey, timestamp: int) -> None:
        """Set the position of a partition to the offset of a timestamp in ms; -2 for the start, -1 for the end.

        It is the first offset with this or a later timestamp, -1 if there is none.

        Raises:
            ProtocolError: the leader refused ListOffsets.
        """
        self.positions[topic_partition] = await self._client.list_offset(
            *topic_partition, timestamp, committed=self._committed
        )

    async def poll(self, wait_ms: int) -> list[ReadRecord]:
        """Fetch from each leader in turn; return the records and advance `positions`.

        All leaders together wait up to ``wait_ms`` for new records. A partition whose position is out of range is
        reset; one with a retriable error is tried again by the next call. After an exception the records that this call
        has already fetched are lost, and their positions have advanced.

        Raises:
            ProtocolError: a partition has an error that is not retriable, or no leader; OSError: a leader cannot be
                reached.
        """
        out: list[ReadRecord] = []
        for channel, partitions in (by_leader := await self._by_leader()):
            request = self._request(partitions, wait_ms // len(by_leader))
            answer = await channel.call(request, channel.version_for(ApiKey.FETCH, LAST_VERSION_WITH_NAMES))
            if answer.error_code:
                raise ProtocolError(ErrorCode(answer.error_code))
            for topic in answer.responses:
                for row in topic.partitions:
                    out += await self._records((topic.topic, row.partition_index), row)
        return out

    async def _by_leader(self) -> list[tuple[Channel, list[TopicPartitionKey]]]:
        out: dict[int, tuple[Channel, list[TopicPartitionKey]]] = {}
        for at in self.positions:
            channel = await self._client.leader(*at)
            out.setdefault(id(channel), (channel, []))[1].append(at)
        return list(out.values())

    def _request(self, partitions: list[TopicPartitionKey], wait_ms: int) -> fetch.FetchRequest:
        topics: dict[str, list[fetch.FetchPartition]] = {}
        for topic, number in partitions:
            row = fetch.FetchPartition(
                number, fetch_offset=self.positions[topic, number], partition_max_bytes=PARTITION_BYTES
            )
            topics.setdefault(topic, []).append(row)
        return fetch.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=int(self._committed),
            topics=[fetch.FetchTopic(topic, partitions=rows) for topic, rows in topics.items()],
        )

    async def _records(self, at: TopicPartitionKey, row: fetch.PartitionData) -> list[ReadRecord]:
        """Return the records in a partition's Fetch row and advance its position.

        Without records: if the position is out of range, it is set to the offset of the reset timestamp; after a
        retriable error the leaders are looked up again by the next request.

        Raises:
            ProtocolError: the partition has another error, or the leader refused ListOffsets.
            WireError: the records are malformed.
            OSError: the leader cannot be reached for ListOffsets.
        """
        code = ErrorCode(row.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self.start(at, self._reset_timestamp)
            return []
        if code and code.retriable:
            self._client.invalidate_leaders()
            return []
        if code:
            raise ProtocolError(code, f"{at[0]}-{at[1]}: {code.text}")
        aborted = [(x.producer_id, x.first_offset) for x in row.aborted_transactions or ()]
        found = decode_committed(row.records or b"", self.positions[at], aborted)
        self.positions[at] = found.next_offset
        return [ReadRecord(*at, record, record.offset in found.append_time_offsets) for record in found.records]
