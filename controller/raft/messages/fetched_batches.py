"""Parser of the batches in a Fetch response of the metadata log, up to the first truncated or corrupt one.

Source: ``KafkaRaftLog.appendAsFollower``, ``KafkaRaftClient.appendAsFollower`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.controller.raft.state_machine.events import FetchedRaftBatch
from ottla.wire.codec.primitives import Buffer
from ottla.wire.errors import WireError
from ottla.wire.messages.control_records import VotersRecord
from ottla.wire.record_batch.batch_header import BatchHeader, crc_matches, iterate_batches
from ottla.wire.record_batch.control_record import decode_control_record
from ottla.wire.record_batch.records import iterate_records

logger = logging.getLogger("ottla.controller")


def parse_fetched_batches(raw: Buffer | None) -> tuple[FetchedRaftBatch, ...]:
    """Return the batches in the records field of a Fetch response, up to the first truncated or corrupt one (R-224)."""
    out: list[FetchedRaftBatch] = []
    try:
        out.extend(_whole(memoryview(raw or b"")))
    except WireError as error:
        logger.warning("Corrupt batch in a fetch response of the metadata log, retrying: %s", error)
    return tuple(out)


def _whole(view: memoryview) -> Iterator[FetchedRaftBatch]:
    for at, header in iterate_batches(view):
        raw = view[at : at + header.size_bytes]
        if header.last_offset_delta < 0 or not crc_matches(raw, header):
            raise WireError(f"bad batch at offset {header.base_offset}")
        voters = _voters(raw, header) if header.is_control else None
        yield FetchedRaftBatch(header.base_offset, header.last_offset, header.partition_leader_epoch, raw, voters)


def _voters(raw: Buffer, header: BatchHeader) -> VotersRecord | None:
    found = None
    for record in iterate_records(raw, header):
        message = decode_control_record(record)
        found = message if isinstance(message, VotersRecord) else found
    return found
