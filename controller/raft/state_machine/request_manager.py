"""Requests of a Raft node to its peers: pending requests, and the backoff of each peer.

Source: ``RequestManager.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.controller.raft.state_machine.epoch_states import NO_DEADLINE_MS
from ottla.controller.raft.state_machine.events import NO_NODE_ID, AddVoter, Fetch, RemoveVoter, UpdateVoter


class RaftRequestManager:
    """Pending fetch, voter request or snapshot of a follower, and the backoff of each peer."""

    def __init__(self) -> None:
        self.next_request_ms: dict[int, float] = {}
        """Voter -> when it may be asked (again); never, while a request to it is under way."""
        self.pending_fetch: Fetch | None = None
        """The fetch that is under way: answers to any other come too late."""
        self.pending_voter_request: AddVoter | RemoveVoter | UpdateVoter | None = None
        """What the leader is being told of this node; nothing is fetched meanwhile."""
        self.fetch_peer = NO_NODE_ID
        """The peer that the request under way was sent to."""
        self.fetch_deadline_ms = NO_DEADLINE_MS
        """When the request under way is given up."""
        self.loading_snapshot: tuple[int, int] | None = None
        """The snapshot that is being fetched from the leader."""

    @property
    def is_fetching(self) -> bool:
        """True if a fetch or a voter request is pending."""
        return self.pending_fetch is not None or self.pending_voter_request is not None

    def deadlines_ms(self, now_ms: float) -> Iterator[float]:
        """Yield the times at which a request may become due."""
        yield from (at for at in self.next_request_ms.values() if at > now_ms)
        if self.is_fetching:
            yield self.fetch_deadline_ms

    def is_backoff_over(self, peer: int, now_ms: float) -> bool:
        """Return True if a request may be sent to a peer."""
        return self.next_request_ms.get(peer, 0) <= now_ms

    def back_off(self, peer: int, until_ms: float) -> None:
        """Send no request to a peer until that time."""
        self.next_request_ms[peer] = until_ms

    def clear_backoff(self, peer: int) -> None:
        """Let a peer be asked at once."""
        self.next_request_ms.pop(peer, None)

    def start(self, peer: int, request: Fetch | AddVoter | RemoveVoter | UpdateVoter, deadline_ms: float) -> None:
        """Record a fetch, or a voter request to the leader, that is sent: no other is sent meanwhile."""
        self.clear_backoff(peer)
        self.fetch_peer, self.fetch_deadline_ms = peer, deadline_ms
        if isinstance(request, Fetch):
            self.pending_fetch = request
        else:
            self.pending_voter_request = request

    def complete(self) -> None:
        """Record that no fetch or voter request is pending any more."""
        self.pending_fetch = self.pending_voter_request = None

    def start_snapshot(self, snapshot: tuple[int, int]) -> None:
        """Record a snapshot fetch from the leader: other fetches pause."""
        self.loading_snapshot = snapshot

    def complete_snapshot(self) -> None:
        """Record that the snapshot is there, or is given up."""
        self.loading_snapshot = None

    def cancel(self) -> None:
        """Cancel the pending requests: responses to them have no effect."""
        self.complete()
        self.complete_snapshot()

    def reset(self) -> None:
        """Cancel the pending requests and the backoffs."""
        self.next_request_ms.clear()
        self.cancel()
