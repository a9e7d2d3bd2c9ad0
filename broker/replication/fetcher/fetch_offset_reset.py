"""Reset of a fetch offset that the leader's local log does not have: requests to the leader, and the decision.

Source: ``AbstractFetcherThread.fetchOffsetAndTruncate``, ``handleOutOfRangeError``,
``handleOffsetsMovedToTieredStorage`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.replication.fetcher.fetch_state import OffsetMovedOutcome
from ottla.broker.replication.fetcher.leader_endpoint import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetcherDependencies,
    fetch_leader_offset,
    skips_tiered_offsets,
)
from ottla.broker.replication.fetcher.pending_outcome import PendingOutcome
from ottla.client.node_connection import NodeConnection
from ottla.wire.errors import ErrorCode, ProtocolError

if TYPE_CHECKING:
    from ottla.broker.replication.fetcher.tier_state_machine import TierStart

logger = logging.getLogger("ottla.fetcher")
_EXPECTED_ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)


async def reset_fetch_offset(
    connection: NodeConnection,
    dependencies: FetcherDependencies,
    outcome: PendingOutcome,
    is_current: Callable[[PendingOutcome], bool],
) -> int | TierStart | None:
    """Request the leader's offsets; restart a log that ends below the leader's log start offset there (R-322).

    ``is_current`` returns whether ``outcome`` still applies; the log is not changed if it does not.

    Returns:
        The leader's log end offset, if the caller must truncate the log to it; or offsets for a start of the local log
        above records in the remote store, which the caller must restart there; else None: the caller may fetch again.

    Raises:
        ProtocolError: error response, or as `_tier_start`.
        Disconnected, WireError: no response. OSError: the disk failed.
    """
    replica, log = outcome.replica, outcome.replica.log
    if type(outcome.outcome) is OffsetMovedOutcome:
        return await _tier_start(connection, dependencies, outcome)
    request = partial(fetch_leader_offset, connection, dependencies, replica, outcome.leader_epoch)
    end = (await request(LATEST_TIMESTAMP)).offset
    if skips_tiered_offsets(dependencies, log, end):
        tier_start = await _tier_start(connection, dependencies, outcome)
        if tier_start is not None:
            return tier_start
    if is_current(outcome) and end < log.log_end_offset:
        return end
    start = (await request(EARLIEST_TIMESTAMP)).offset
    if is_current(outcome) and start > log.log_end_offset:
        logger.warning("Truncate fully and start at offset %d of the leader: %s", start, log.label)
        log.truncate_fully_and_start_at(start, dependencies.env.now_ms())
        replica.notify_waiters()
    return None


async def _tier_start(
    connection: NodeConnection, dependencies: FetcherDependencies, outcome: PendingOutcome
) -> TierStart | None:
    """Request the leader's offsets for the start of the local log; None if the leader has no record below it.

    Kafka repeats the request then, until the leader has copied a segment.

    Raises:
        ProtocolError: error response; OFFSET_NOT_AVAILABLE if the leader does not know which offsets are copied, or
            does not have the remote segment's records.
        Disconnected, WireError: no response.
    """
    # lazy: 9.3 ms, 295 kB
    from ottla.broker.replication.fetcher.tier_state_machine import check_segment_lineage, request_tier_start

    replica, leader_epoch = outcome.replica, outcome.leader_epoch
    start = await request_tier_start(connection, dependencies, replica, leader_epoch)
    if start.first_local_offset <= start.log_start_offset:
        return None
    await check_segment_lineage(connection, dependencies, replica, leader_epoch, start)
    return start


def log_reset_error(outcome: PendingOutcome, error: Exception, *, is_retriable: bool = False) -> None:
    """Log the error that prevented a reset of the fetch offset, at the level that Kafka uses.

    The level is info for errors that newer metadata resolves, else error. ``is_retriable`` decides for an error without
    an error code.
    """
    name, is_expected = outcome.replica.log.label, is_retriable
    if isinstance(error, ProtocolError):
        is_expected = error.code in _EXPECTED_ERRORS
        if error.code is ErrorCode.FENCED_LEADER_EPOCH:
            text = (
                "Partition %s has an older epoch (%d) than the current leader. Will await the new state of the leader"
            )
            logger.info(f"{text} before resuming fetching.", name, outcome.leader_epoch)
            return
    match type(outcome.outcome) is OffsetMovedOutcome, is_expected:
        case True, True:
            logger.info("Could not build remote log auxiliary state for %s due to error: %s", name, error)
        case True, False:
            logger.error("Error building remote log auxiliary state for %s: %s", name, error)
        case False, True:
            logger.info("Could not fetch offset for %s due to error: %s", name, error)
        case _:
            logger.error("Error getting offset for partition %s: %s", name, error)
