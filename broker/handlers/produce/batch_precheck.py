"""Precheck of the batches of a Produce request by their first bytes, before any is validated.

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
"""Offset of the attributes, which show whether a batch is transactional."""
ADMIN_CLIENT_ID = "__admin_client"
"""Only client id whose records go to internal topics: coordinators trust them (``AdminUtils``)."""
TRANSACTIONAL = ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
"""Stands for a request that must go another way: it has a batch of a transaction."""


def find_batch_problem(parts: Iterable[PartitionProduceData]) -> ProtocolError | None:
    """Return `TRANSACTIONAL`, or the error of the first invalid batch header, which fails the whole request."""
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
    """Return a topic's name; None for an unknown id."""
    if context.version < 13:
        return topic.name
    return context.image.topic_names.get(topic.topic_id)
