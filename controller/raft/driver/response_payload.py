"""Reading of the records or snapshot bytes for the state machine's responses to Fetch and FetchSnapshot.

Source: ``KafkaRaftClient.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ottla.controller.metadata.snapshot_files import SnapshotId
from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.events import OutboundResponse, RaftFetchResponse, RaftFetchSnapshotResponse
from ottla.controller.raft.store.metadata_store import MetadataStore
from ottla.env.disk import is_transient
from ottla.wire.errors import ErrorCode, ProtocolError

logger = logging.getLogger("ottla.controller")


class ResponseWithRecords(NamedTuple):
    """Response of the state machine, the bytes for it (batches, a snapshot chunk or none) and the log start offset."""

    response: events.AnyRaftResponse
    records: bytes
    log_start_offset: int


def read_response_records(store: MetadataStore, reply: OutboundResponse) -> ResponseWithRecords:
    """Return a response with the batches or the snapshot chunk which it names, read from the metadata log.

    For damaged records the error becomes UNKNOWN_SERVER_ERROR. While this process is short of descriptors or memory,
    the response has no bytes, and the other replica retries.

    Raises:
        OSError: an error of the disk.
    """
    answer, raw = reply.response, b""
    try:
        if isinstance(answer, RaftFetchResponse) and answer.offset >= 0:
            raw = store.read(answer.offset, reply.pending_request.request.max_bytes)
        elif isinstance(answer, RaftFetchSnapshotResponse) and answer.error == ErrorCode.NONE:
            raw = store.read_snapshot_chunk(
                SnapshotId(*answer.snapshot), answer.position, reply.pending_request.request.max_bytes
            )
    except ProtocolError:
        logger.exception("Failed to read the metadata log for a replica: %s", answer)
        answer = RaftFetchResponse(ErrorCode.UNKNOWN_SERVER_ERROR, answer.epoch, answer.leader_id)
    except OSError as error:
        if not is_transient(error):
            raise
        logger.warning("Failed to read the metadata log for a replica, short of resources: %s", error)
    return ResponseWithRecords(answer, raw, store.log.log_start_offset)
