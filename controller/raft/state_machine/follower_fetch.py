"""Fetches of the metadata log by followers and observers: which node they go to, and what their responses change.

Source: ``KafkaRaftClient.java`` (its ``...Fetch...`` methods), ``RequestManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft.state_machine import lost_disk, voter_join
from ottla.controller.raft.state_machine.epoch_states import EpochState, RaftFollowerState, UnattachedState
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    AddVoter,
    Fetch,
    FetchedRaftBatch,
    FetchSnapshot,
    LogAppend,
    OutboundRequest,
    RaftFetchResponse,
    RaftFetchSnapshotResponse,
    RemoveVoter,
    UpdateVoter,
    VoterState,
)
from ottla.controller.raft.state_machine.log_summary import voter_keys
from ottla.controller.raft.state_machine.raft_state import RaftState
from ottla.wire.errors import ErrorCode


def maybe_send_fetch(raft: RaftState) -> None:
    """Add the next Fetch, or a join or update request that is due, to `Ready`, unless one is in flight.

    It is sent only once the whole log is flushed, as the leader counts the fetch offset as replicated (R-225). A node
    without a known leader, or whose leader is in backoff, fetches from a bootstrap node (R-223). Nothing is sent during
    a snapshot download, in other states than Follower and Unattached, or while all destinations are in backoff.
    """
    if (
        not isinstance(raft.state, RaftFollowerState | UnattachedState)
        or raft.requests.is_fetching
        or raft.requests.loading_snapshot is not None
        or raft.flushed_offset < raft.log_summary.end_offset
    ):
        return
    peer = _fetch_destination(raft)
    if peer == NO_NODE_ID:
        return
    request: Fetch | AddVoter | RemoveVoter | UpdateVoter | None = None
    if isinstance(raft.state, RaftFollowerState) and peer == raft.state.leader_id:
        request = voter_join.next_voter_request(raft)
    if request is None:
        chain = raft.log_summary
        request = Fetch(
            lost_disk.fetch_replica_key(raft),
            raft.epoch,
            chain.end_offset,
            chain.last_epoch,
            raft.high_watermark,
            raft.timeouts.max_wait_ms,
            raft.timeouts.fetch_bytes,
        )
    raft.requests.start(peer, request, raft.now_ms + raft.timeouts.request_ms)
    raft.ready.sends.append(OutboundRequest(peer, request))


def _fetch_destination(raft: RaftState) -> int:
    """Return the id of the leader; if it is unknown or in backoff, of a random bootstrap node (R-223).

    Returns -1 if all of these are in backoff.
    """
    if isinstance(raft.state, RaftFollowerState) and _is_backoff_over(raft, raft.state.leader_id):
        return raft.state.leader_id
    able = [peer for peer in raft.bootstrap if _is_backoff_over(raft, peer)]
    return raft.random_peer(able) if able else NO_NODE_ID


def _is_backoff_over(raft: RaftState, peer: int) -> bool:
    return raft.requests.is_backoff_over(peer, raft.now_ms)


def handle_fetch_failure(raft: RaftState, peer: int) -> None:
    """Complete the fetch or voter request in flight without a result, and start the backoff of its peer."""
    raft.requests.complete()
    back_off(raft, peer)


def back_off(raft: RaftState, peer: int) -> None:
    """Send no request to a peer for the retry backoff from now on."""
    raft.requests.back_off(peer, raft.now_ms + raft.timeouts.retry_ms)


def handle_fetch_response(
    raft: RaftState,
    state_before: EpochState,
    peer: int,
    request: Fetch,
    answer: RaftFetchResponse,
    batches: tuple[FetchedRaftBatch, ...],
) -> None:
    """Process a Fetch response: append its batches, truncate, start a snapshot download or back off (R-224 to R-226).

    The high watermark advances to the leader's, at most to the end of this log. Truncation below the high watermark is
    refused and logged as a protocol violation. If a node without a known leader gets the response from the leader
    itself, it already follows it now, and the batches are appended at once (R-209).

    ``state_before``: state when the response arrived, before it was checked for a new leader or epoch.
    """
    state = raft.state
    current = request.epoch == answer.epoch == raft.epoch
    if not isinstance(state, RaftFollowerState) or not current or answer.error != ErrorCode.NONE:
        if state is state_before:
            back_off(raft, peer)
        return
    raft.reset_fetch_timeout()
    if answer.snapshot is not None:
        raft.load_snapshot(answer.snapshot)
        return
    if answer.diverging is not None:
        epoch, end = answer.diverging
        own_epoch, own_end = raft.log_summary.end_offset_for_epoch(epoch)
        if epoch == 0:
            own_end = min(end, raft.log_summary.end_offset)
        elif own_epoch == epoch:
            own_end = min(end, own_end)
        # else truncate only the newer epochs: the logs have no epoch in common at which to truncate
        if own_end >= raft.high_watermark:
            raft.truncate(own_end)
            return
        committed = raft.high_watermark
        raft.ready.report_violation(
            f"{peer} requests truncation to offset {end} of epoch {epoch}, below high watermark {committed}"
        )
        back_off(raft, peer)
        return
    if raft.hard_state.voter_state != VoterState.NORMAL:
        lost_disk.maybe_complete_recovery(raft, request, answer, nothing_new=not batches)
    for batch in batches:
        if (
            batch.first_offset != raft.log_summary.end_offset
            or batch.epoch < raft.log_summary.last_epoch
            or batch.epoch > raft.epoch
        ):
            break  # a batch that does not follow the log's end is dropped, with all that follow it
        _append_fetched_batch(raft, batch)
    if answer.high_watermark >= 0:
        raft.raise_high_watermark(min(raft.log_summary.end_offset, answer.high_watermark))


def handle_fetch_snapshot_response(raft: RaftState, request: FetchSnapshot, answer: RaftFetchSnapshotResponse) -> None:
    """Process the response with a chunk of the snapshot that is being downloaded; the driver stores the bytes.

    A chunk restarts the fetch timeout. If the leader has no such snapshot, or the chunk is another than requested, the
    download is cancelled, and the log is fetched again. After any other error the driver retries. Kafka's node stops if
    the response is for another snapshot or position (R-235); a new request loses no data.
    """
    state = raft.state
    current = request.epoch == answer.epoch == raft.epoch and request.snapshot == raft.requests.loading_snapshot
    if not isinstance(state, RaftFollowerState) or not current:
        return
    right = (answer.snapshot, answer.position) == (request.snapshot, request.position)
    if answer.error in (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE):
        raft.requests.complete_snapshot()
        raft.reset_fetch_timeout()
    elif answer.error == ErrorCode.NONE and right:
        raft.reset_fetch_timeout()
    elif answer.error == ErrorCode.NONE:
        raft.requests.complete_snapshot()


def _append_fetched_batch(raft: RaftState, batch: FetchedRaftBatch) -> None:
    count = batch.last_offset - batch.first_offset + 1
    raft.log_summary.append(batch.epoch, count)
    if batch.voters is not None:
        raft.voters.add(batch.first_offset, voter_keys(batch.voters), batch.voters)
    raft.ready.appends.append(LogAppend(batch.first_offset, count, batch.epoch, batch.raw, verbatim=True))
