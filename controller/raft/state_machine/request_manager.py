"""Requests of a Raft node to other nodes: which are in flight, and the backoff of each peer. Nothing is sent here.

Source: ``RequestManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.raft.state_machine.epoch_states import NO_DEADLINE_MS
from ottla.controller.raft.state_machine.events import NO_NODE_ID, AddVoter, Fetch, RemoveVoter, UpdateVoter


class RaftRequestManager:
    """Requests of a follower in flight (fetch, voter change, snapshot), and the backoff of each peer.

    Times are monotonic.
    """

    def __init__(self) -> None:
        self.next_request_ms: dict[int, float] = {}
        """Node id to the time in ms from which a request may be sent.

        Infinite while a Vote, BeginQuorumEpoch or EndQuorumEpoch is in flight, but not for a fetch or voter change.
        """
        self.pending_fetch: Fetch | None = None
        """Fetch in flight, None if there is none; responses to any other fetch are ignored."""
        self.pending_voter_request: AddVoter | RemoveVoter | UpdateVoter | None = None
        """Voter change request to the leader in flight, None if there is none; no fetch is sent meanwhile."""
        self.fetch_peer = NO_NODE_ID
        """Destination (node id) of the fetch or voter change request in flight, or of the last one; -1 before."""
        self.fetch_deadline_ms = NO_DEADLINE_MS
        """Time in ms at which the fetch or voter change request in flight times out; without one it has no meaning."""
        self.loading_snapshot: tuple[int, int] | None = None
        """Id (end offset, epoch) of the snapshot that is being downloaded from the leader; None if there is none."""

    @property
    def is_fetching(self) -> bool:
        """True if a fetch or a voter change request is in flight."""
        return self.pending_fetch is not None or self.pending_voter_request is not None

    def deadlines_ms(self, now_ms: float) -> Iterator[float]:
        """Yield the monotonic times in ms at which a backoff ends (after ``now_ms``) or the request times out."""
        yield from (at for at in self.next_request_ms.values() if at > now_ms)
        if self.is_fetching:
            yield self.fetch_deadline_ms

    def is_backoff_over(self, peer: int, now_ms: float) -> bool:
        """Return True if a peer is in no backoff, and no Vote, BeginQuorumEpoch or EndQuorumEpoch to it is in flight.

        A fetch or voter change request in flight is not considered: see `is_fetching`.
        """
        return self.next_request_ms.get(peer, 0) <= now_ms

    def back_off(self, peer: int, until_ms: float) -> None:
        """Allow no request to a peer before ``until_ms`` (monotonic)."""
        self.next_request_ms[peer] = until_ms

    def clear_backoff(self, peer: int) -> None:
        """Allow the next request to a peer at once, without the wait after an earlier failure."""
        self.next_request_ms.pop(peer, None)

    def start(self, peer: int, request: Fetch | AddVoter | RemoveVoter | UpdateVoter, deadline_ms: float) -> None:
        """Record that a fetch, or a voter change request to the leader, is in flight: no other is sent meanwhile.

        It times out at ``deadline_ms`` (monotonic). The backoff of the peer is cleared.
        """
        self.clear_backoff(peer)
        self.fetch_peer, self.fetch_deadline_ms = peer, deadline_ms
        if isinstance(request, Fetch):
            self.pending_fetch = request
        else:
            self.pending_voter_request = request

    def complete(self) -> None:
        """Record that the fetch or voter change request in flight is completed; a snapshot download goes on."""
        self.pending_fetch = self.pending_voter_request = None

    def start_snapshot(self, snapshot: tuple[int, int]) -> None:
        """Record the start of a snapshot download from the leader: fetches of the log pause."""
        self.loading_snapshot = snapshot

    def complete_snapshot(self) -> None:
        """Record that the snapshot download is completed or cancelled."""
        self.loading_snapshot = None

    def cancel(self) -> None:
        """Give up the fetch or voter change request in flight and the snapshot download: responses have no effect."""
        self.complete()
        self.complete_snapshot()

    def reset(self) -> None:
        """Give up requests in flight and the snapshot download: responses have no effect. Clear all backoffs."""
        self.next_request_ms.clear()
        self.cancel()
