"""Prepared Produce: repeated requests of a producer to one partition that differ only in correlation id and batch.

The batch is validated and appended as any other. The handler serves the request instead, before anything is appended,
if the log rejects the batch, for transactional batches, log append times, quotas, a partition that this broker does not
lead, and acknowledgements that wait for followers or for a flush.
"""

from __future__ import annotations

import struct
from collections.abc import Set
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.broker.handlers.admin.metadata import INTERNAL_TOPICS
from ottla.broker.handlers.prepared_request import (
    MAX_REQUEST_BYTES,
    NotPreparable,
    RepeatedRequest,
    header_behind_id,
    is_repeated,
    offset_mark,
    pack_mark,
    split_at_marks,
)
from ottla.broker.handlers.produce.partition_append import MIN_ZSTD_VERSION, count_rejection
from ottla.log.log_config import FOREVER_MS, LogConfig
from ottla.log.log_validator import AppendOrigin, ValidationPending, parse_single_batch
from ottla.wire.api_keys import ApiKey
from ottla.wire.codec import compiler
from ottla.wire.codec.compiler import Chunk
from ottla.wire.codec.primitives import write_uvarint
from ottla.wire.errors import ErrorCode, ProtocolError, WireError
from ottla.wire.framing import encode_response
from ottla.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.record_batch.batch_header import HEADER_BYTES
from ottla.wire.record_batch.compression import CompressionType

MAX_FRAME_BYTES = 1024 * 1024
"""Bytes of a request to prepare by: it is copied and encoded, which takes 8 ms for 10 MiB and gains nothing there."""
FLEXIBLE_SINCE = 9
LOG_START_SINCE = 5
TOPIC_IDS_SINCE = 13
_LENGTH = struct.Struct(">i").pack
_CLIENT = AppendOrigin.CLIENT


def _request_layout(context: RequestContext, request: ProduceRequest) -> tuple[bytes, bytes]:
    """Return the bytes of a request between correlation id and length of the records, and those after the records.

    Raises:
        NotPreparable: The position of the records is not unique, or the client encodes the request differently.
    """
    header = header_behind_id(context, request)
    (topic,) = request.topic_data
    (part,) = topic.partition_data
    mark = pack_mark(0)
    marked = replace(request, topic_data=[replace(topic, partition_data=[replace(part, records=mark)])])
    head, tail = split_at_marks(compiler.encode(marked, context.version), [mark])
    return header + head[: -1 if context.version >= FLEXIBLE_SINCE else -4], tail


def _response_layout(context: RequestContext, name: str, topic_id: bytes, index: int) -> tuple[int, bytes, bytes]:
    """Return the number of int64 fields of a response, and the bytes before and after them.

    The fields are base offset, append time and, from v5, log start offset. ``index`` is the partition.

    Raises:
        NotPreparable: The position of the fields is not unique.
    """
    row = PartitionProduceResponse(index, 0, offset_mark(0), offset_mark(1), offset_mark(2))
    marked = ProduceResponse([TopicProduceResponse(name, topic_id, [row])])
    raw = b"".join(bytes(chunk) for chunk in encode_response(ApiKey.PRODUCE, context.version, 0, marked))
    count = 3 if context.version >= LOG_START_SINCE else 2
    before, after = split_at_marks(raw[8:], [b"".join(map(pack_mark, range(count)))])
    return count, before, after


class PreparedProduce(RepeatedRequest):
    """Byte layouts of a repeated Produce request and of its response; serves further requests with the same layout."""

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        (topic,) = request.topic_data
        self._version = context.version
        self._topic_id = topic.topic_id
        self._topic = context.image.topic_names[topic.topic_id] if context.version >= TOPIC_IDS_SINCE else topic.name
        super().__init__(context, [(self._topic, topic.topic_id)])
        self._partition = topic.partition_data[0].index
        self._waits_for_isr = request.acks == -1
        self._max_attributes = CompressionType.ZSTD - (context.version < MIN_ZSTD_VERSION)
        """Highest attributes of a batch without other flags than its compression type."""
        self._is_flexible = context.version >= FLEXIBLE_SINCE
        self._key = bytes(context.frame[:4])
        self._head, self._tail = _request_layout(context, request)
        self._validating_config: LogConfig | None = None
        """Settings by which many records of a batch had to be read."""
        self._frame_bytes = self._records_at = 0
        self._head_and_length = b""
        count, self._before, self._after = _response_layout(context, topic.name, topic.topic_id, self._partition)
        layout = struct.Struct(f">i4s{len(self._before)}s{count}q{len(self._after)}s")
        self._pack = layout.pack
        self._response_bytes = layout.size - 4
        self._has_log_start = context.version >= LOG_START_SINCE
        if len(self._head) + len(self._tail) > MAX_REQUEST_BYTES:
            raise NotPreparable

    def _authorized_topics(self) -> Set[str]:
        return self._authorization_cache.writable_topics

    def _fits(self, frame_bytes: int) -> bool:
        """Compute the position of the records in a frame of another size; return False if no batch fits into it."""
        left = frame_bytes - 8 - len(self._head) - len(self._tail)
        for length_bytes in range(1, 6) if self._is_flexible else (4,):
            size_bytes = left - length_bytes
            if size_bytes < HEADER_BYTES:
                return False
            length = write_uvarint(size_bytes + 1) if self._is_flexible else _LENGTH(size_bytes)
            if len(length) == length_bytes:
                self._frame_bytes = frame_bytes
                self._head_and_length = self._head + length
                self._records_at = 8 + len(self._head_and_length)
                return True
        return False

    def respond(self, view: memoryview, start: int, end: int) -> list[Chunk] | None:
        """Append the batch of the request frame in ``view[start:end]`` and return the encoded response.

        An I/O error fails the log directory; the response has KAFKA_STORAGE_ERROR then.

        Returns:
            None, with nothing appended, if the handler must serve the request.
        """
        buffer: Any = view.obj
        if (
            (end - start != self._frame_bytes and not self._fits(end - start))
            or not buffer.startswith(self._head_and_length, start + 8)
            or not buffer.startswith(self._key, start)
            or not buffer.startswith(self._tail, end - len(self._tail))
            or not self._is_current()
        ):
            return None
        services = self._services
        replica = services.replica_manager.get(self._topic, self._partition)
        if replica is None or not replica.is_leader or replica.is_flushing:
            return None
        log = replica.log
        config = log.config
        if config.log_append_time or config.flush_messages != FOREVER_MS or config is self._validating_config:
            return None
        if self._waits_for_isr and not (replica.is_sole_replica and log.high_watermark == log.log_end_offset):
            return None
        batch = view[start + self._records_at : end - len(self._tail)]
        try:
            header = parse_single_batch(batch)
            if not 0 <= header.attributes <= self._max_attributes:
                return None
            done = replica.append(batch, services.env.now_ms(), _CLIENT, header, at_once=False)
        except ProtocolError:  # the handler will meet the same error and report it
            return None
        except ValidationPending:  # the handler reads the records, here a second time
            self._validating_config = config
            return None
        except OSError as error:
            services.fail(error, log)
            count_rejection(replica.traffic, ErrorCode.KAFKA_STORAGE_ERROR, 0)
            return self._disk_failure(int.from_bytes(buffer[start + 4 : start + 8], "big", signed=True))
        traffic = replica.traffic
        traffic.produces += 1
        traffic.bytes_in += len(batch)
        traffic.messages_in += header.last_offset_delta + 1
        size, correlation_id = self._response_bytes, buffer[start + 4 : start + 8]
        base, time_ms = done.first_offset, done.log_append_time_ms
        if self._has_log_start:
            log_start = log.log_start_offset
            return [self._pack(size, correlation_id, self._before, base, time_ms, log_start, self._after)]
        return [self._pack(size, correlation_id, self._before, base, time_ms, self._after)]

    def _disk_failure(self, correlation_id: int) -> list[Chunk]:
        self._peer.add_request_error(ErrorCode.KAFKA_STORAGE_ERROR)
        row = PartitionProduceResponse(self._partition, ErrorCode.KAFKA_STORAGE_ERROR, -1)
        response = ProduceResponse([TopicProduceResponse(self._topic, self._topic_id, [row])])
        return encode_response(ApiKey.PRODUCE, self._version, correlation_id, response)


def prepare(context: RequestContext, request: ProduceRequest) -> None:
    """Count a request; set the prepared request of the connection if the last ones were alike and it is preparable.

    Called after a Produce that was served without a delay and without an error. Only requests of at most
    `MAX_FRAME_BYTES` with one partition of a topic that is not internal are counted. After enough requests that are
    alike the previous prepared request is removed in any case.
    """
    if len(request.topic_data) != 1 or len(context.frame) > MAX_FRAME_BYTES:
        return
    (topic,) = request.topic_data
    if len(topic.partition_data) != 1 or topic.name in INTERNAL_TOPICS:
        return
    index = topic.partition_data[0].index
    if is_repeated(context, (topic.name, topic.topic_id, index, request.acks)):
        with suppress(NotPreparable, WireError, KeyError):
            context.peer.prepared_request = PreparedProduce(context, request)
