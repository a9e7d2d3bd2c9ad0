"""Check of the batch headers of a Produce request up to the first problem, before any batch is validated or appended.

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
"""Position in a batch of the low byte of its attributes, which has the transactional bit."""
ADMIN_CLIENT_ID = "__admin_client"
"""The only client id that may produce to internal topics: coordinators trust their records (``AdminUtils``)."""
TRANSACTIONAL = ProtocolError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
"""Result of `find_batch_problem` for a request with a transactional batch, which has to be verified first."""


def find_batch_problem(parts: Iterable[PartitionProduceData]) -> ProtocolError | None:
    """Check size and magic of batches up to the first problem: an invalid one, or a transactional batch.

    Returns:
        The error of the invalid header, which fails the whole request; `TRANSACTIONAL` for a transactional batch; None
        if there is neither. Records of None, and incomplete batches, are skipped.
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
    """Return a topic's name, from v13 by its topic id; None for an unknown id."""
    if context.version < 13:
        return topic.name
    return context.image.topic_names.get(topic.topic_id)
