"""Producer of one topic, idempotent by default: sequence numbers let a retried batch be appended only once (KIP-98).

Source: ``TransactionManager.java``, ``Sender.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from functools import partial

from ottla.cli.common import RESOURCE_TOPIC
from ottla.cli.errors import CommandFailed, code_text, raise_for_error
from ottla.client.cluster_client import ClusterClient
from ottla.client.record_splitting import TOO_LARGE_CODES, append_in_batches
from ottla.wire.api_keys import ApiKey
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.record_batch import batch_header, records
from ottla.wire.record_batch.compression import CompressionType

NEWEST_VERSION_WITH_NAMES = 12
"""Newest version of Produce that identifies topics by name."""
MAX_SEQUENCE = 2**31 - 1
_APPENDED = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_MAX_BYTES = "max.message.bytes"


class TopicProducer:
    """Producer that sends batches to the partitions of a topic, one batch at a time.

    Args:
        client: client of the cluster.
        topic: name of the topic.
        codec: compression of the batches.
        acks: acknowledgements that the leader waits for; -1 stands for all in-sync replicas.
        idempotent: True to use a producer id; ignored unless ``acks`` is -1. Without one, a batch whose response is
            lost is appended again.
    """

    def __init__(
        self, client: ClusterClient, topic: str, codec: CompressionType, acks: int = -1, *, idempotent: bool = True
    ) -> None:
        self._client = client
        self._topic = topic
        self._codec = codec
        self._acks = acks
        self._idempotent = idempotent and acks == -1
        self._id, self._epoch = batch_header.NO_PRODUCER_ID, batch_header.NO_PRODUCER_EPOCH
        self._sequences: dict[int, int] = {}
        self.sent = 0
        """Number of records that were sent, and acknowledged unless ``acks`` is 0."""

    async def _init_producer_id(self) -> None:
        """Request a producer id from any broker, and keep it with its epoch; retry while that is possible.

        Raises:
            CommandFailed: the request is refused, or the broker does not support InitProducerId.
            ProtocolError, OSError: a retriable error lasts for `LEADER_MOVE_TIMEOUT_MS`.
        """

        async def send_request() -> None:
            channel = await self._client.bootstrap_channel()
            if ApiKey.INIT_PRODUCER_ID not in channel.versions:
                raise CommandFailed("the broker has no InitProducerId API: --no-idempotence")
            answer = await channel.call(InitProducerIdRequest(None, MAX_SEQUENCE))
            if answer.error_code and ErrorCode(answer.error_code).retriable:
                raise ProtocolError(ErrorCode(answer.error_code), "producer id")
            raise_for_error(answer.error_code, None, "no producer id (--no-idempotence needs none)")
            self._id, self._epoch = answer.producer_id, answer.producer_epoch

        await self._client.retry_while_leader_moves(send_request)

    async def send(self, partition: int, items: list[records.NewRecord]) -> None:
        """Append records to a partition and wait until they are acknowledged, or with ``acks`` 0 are sent.

        They are one batch, or several if one would be too large. The first call of an idempotent producer also requests
        its producer id.

        Raises:
            CommandFailed: a batch is refused, or still is with a retriable code after `LEADER_MOVE_TIMEOUT_MS`; the
                message names topic and partition, and the limit for a batch that is too large. Or a producer id is
                refused or not supported.
            ProtocolError: a retriable error of InitProducerId lasts for `LEADER_MOVE_TIMEOUT_MS`.
            OSError: the leader cannot be reached for `LEADER_MOVE_TIMEOUT_MS`.
        """
        if self._idempotent and self._id == batch_header.NO_PRODUCER_ID:
            await self._init_producer_id()
        await append_in_batches(items, partial(self._append_batch, partition))

    async def _append_batch(self, partition: int, items: list[records.NewRecord]) -> None:
        """Append records as one batch. Raises as `send`, but ProtocolError if a batch of several is too large."""
        first = self._sequences.get(partition, 0) if self._idempotent else batch_header.NO_SEQUENCE
        raw = records.build_batch(
            items, codec=self._codec, producer_id=self._id, producer_epoch=self._epoch, base_sequence=first
        )
        try:
            await self._client.retry_while_leader_moves(lambda: self._append(partition, raw))
        except ProtocolError as error:
            if error.code in TOO_LARGE_CODES and len(items) > 1:
                raise
            raise CommandFailed(await self._refusal(error, partition, len(raw))) from None
        self.sent += len(items)
        self._sequences[partition] = (first + len(items)) % (MAX_SEQUENCE + 1)

    async def _append(self, partition: int, raw: bytes) -> None:
        connection = await self._client.leader(self._topic, partition)
        data = TopicProduceData(self._topic, partition_data=[PartitionProduceData(partition, raw)])
        version = connection.version_for(ApiKey.PRODUCE, NEWEST_VERSION_WITH_NAMES)
        answer = await connection.call(ProduceRequest(None, self._acks, 30_000, [data]), version)
        if answer is None:  # acks=0 has no response
            return
        row = answer.responses[0].partition_responses[0]
        if row.error_code not in _APPENDED:
            raise ProtocolError(ErrorCode(row.error_code), row.error_message)

    async def _refusal(self, error: ProtocolError, partition: int, size: int) -> str:
        """Return the error message for a batch of ``size`` bytes that was refused with ``error``.

        For a batch that is too large, the limit of the topic is requested.
        """
        where = f"topic {self._topic}, partition {partition}"
        if error.code in TOO_LARGE_CODES:
            limit = await self._max_bytes()
            return f"record too large: {where} (batch of {size} bytes{limit})"
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"not authorized to write: {where}"
        return f"{code_text(error.code, error.message)}: {where}"

    async def _max_bytes(self) -> str:
        """Request the topic's ``max.message.bytes`` and return ``, max.message.bytes is N``.

        The text is empty if the client is not authorized to describe the topic's configuration.
        """
        resource = DescribeConfigsResource(RESOURCE_TOPIC, self._topic, [_MAX_BYTES])
        row = (await self._client.call(DescribeConfigsRequest([resource]))).results[0]
        return next((f", {_MAX_BYTES} is {x.value}" for x in row.configs if x.name == _MAX_BYTES), "")
