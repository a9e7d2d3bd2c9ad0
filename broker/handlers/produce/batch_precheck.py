"""What the first bytes of a Produce request's batches say about the whole of it, before any is looked at further.

Source: ``RequestUtils.hasTransactionalRecords`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.broker.dispatch.dispatcher import RequestContext
from ottla.log.log_validator import batch_size
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.messages.produce import PartitionProduceData, TopicProduceData
from ottla.wire.record_batch.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, TRANSACTIONAL_BIT

_LENGTH = struct.Struct(">i").unpack_from
_MIN_LENGTH = HEADER_BYTES - LOG_OVERHEAD_BYTES
_ATTRIBUTES = 22
"""Where the byte lies that says whether a batch belongs to a transaction."""
ADMIN_CLIENT_ID = "__admin_client"
"""The only client whose records go to internal topics: coordinators believe what stands there (``AdminUtils``)."""
TRANSACTIONAL = ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
"""Stands for a request that must go another way: it has a batch of a transaction."""


def find_batch_problem(parts: Iterable[PartitionProduceData]) -> ProtocolError | None:
    """`TRANSACTIONAL`, or what is wrong where some partition's bytes begin like no batch: then nothing of the request
    is looked at further. Whichever comes first (``RequestUtils.hasTransactionalRecords``).
    """
    for part in parts:
        data = part.records
        if data is None:
            continue
        if len(data) >= HEADER_BYTES and data[16] == 2 and _LENGTH(data, 8)[0] >= _MIN_LENGTH:
            if data[_ATTRIBUTES] & TRANSACTIONAL_BIT:
                return TRANSACTIONAL
            continue
        try:
            batch_size(data)
        except ProtocolError as error:
            return error
    return None


def topic_name(context: RequestContext, topic: TopicProduceData) -> str | None:
    """A topic's name; None where its id is not known."""
    if context.version < 13:
        return topic.name
    return context.image.topic_names.get(topic.topic_id)
