"""State of a replica of the metadata log (epoch, role, voters, offsets) and its transitions; the rules are elsewhere.

Source: ``QuorumState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Set

from ottla.controller.raft.state_machine import events
from ottla.controller.raft.state_machine.epoch_states import (
    LEGAL_TRANSITIONS,
    NO_DEADLINE_MS,
    PERSISTED_STATES,
    CandidateState,
    EpochState,
    ProspectiveState,
    RaftFollowerState,
    RaftLeaderState,
    ReplicaProgress,
    ResignedState,
    UnattachedState,
    leader_id_of,
)
from ottla.controller.raft.state_machine.events import (
    NO_NODE_ID,
    HardState,
    OutboundResponse,
    RaftFetchResponse,
    Ready,
    ReplicaKey,
    VoterChangeResponse,
    VoterState,
)
from ottla.controller.raft.state_machine.leader import DelayedRaftFetch, majority_end_offset, read_for_fetch
from ottla.controller.raft.state_machine.log_summary import LogSummary, VoterSetHistory
from ottla.controller.raft.state_machine.quorum_timeouts import DEFAULT_TIMEOUTS, QuorumTimeouts
from ottla.controller.raft.state_machine.request_manager import RaftRequestManager
from ottla.wire.codec.schema import Message
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.control_records import VotersRecordVoter

LEADER_SEARCH_TIMEOUT_MS = 10_000
"""Time that a voter with a lost disk searches for a leader before it logs that there is none."""


class RaftState:
    """State of a replica of the metadata log; methods change it and add actions for the driver to ``ready``.

    The driver persists the hard state and the log; ``log_summary`` has the log's offsets and epochs.
    """

    duplicate_id_epoch = -1
    """Newest epoch in which another node seemed to have this node's id; -1 before."""

    def __init__(
        self,
        me: ReplicaKey,
        voters: VoterSetHistory,
        hard: HardState,
        chain: LogSummary,
        random: Callable[[], float],
        timeouts: QuorumTimeouts = DEFAULT_TIMEOUTS,
        first_records: tuple[Message, ...] = (),
        bootstrap: tuple[int, ...] = (),
        entry: VotersRecordVoter | None = None,
        *,
        listener: str = "CONTROLLER",
        auto_join: bool = False,
        flushed_offset: int | None = None,
    ) -> None:
        """Create the state of node ``me``.

        ``hard``: epoch, leader and vote from quorum-state. ``chain``: mirror of the log. ``random``: returns a random
        number in [0, 1). ``bootstrap``: node ids to find the leader at. ``entry``: VotersRecord entry of this node,
        None without the controller role. ``flushed_offset``: end of the flushed part of the log; None: all of it.
        """
        self.local_replica = me
        self.voters = voters
        self.hard_state = hard
        self.log_summary = chain
        self.timeouts = timeouts
        self.high_watermark = -1
        self.flushed_offset = chain.end_offset if flushed_offset is None else min(chain.end_offset, flushed_offset)
        """Offset below which this node's log is flushed."""
        self.state: EpochState = UnattachedState(NO_DEADLINE_MS)
        self.requests = RaftRequestManager()
        self.bootstrap = tuple(peer for peer in bootstrap if peer != me.id)
        """Node ids to fetch from to find the leader: -2 and below for bootstrap servers, ids of voters (R-223)."""
        self.reachable_replicas: set[int] = set()
        """Ids of non-voters with a known address; a leader whose address is unknown is not followed (R-256). The id of
        a leader that was followed once is never removed.
        """
        self.refused_leader_id = NO_NODE_ID
        """Leader whose port refused a connection, not followed after a lost pre-vote; -1: none, or followed since."""
        self.voter_entry = entry
        """VotersRecord entry of this node, also if it is no voter; None without the controller role."""
        self.listener = listener
        """Listener for which every voter must have an endpoint: the first of ``controller.listener.names``."""
        self.auto_join = auto_join
        self.responded_voters: set[int] = set()
        """Ids of voters that have responded since the process started; recorded while its voter state is not NORMAL."""
        self.started_ms = 0.0
        """Monotonic time of the start in ms."""
        self.leader_search_deadline_ms = NO_DEADLINE_MS
        """Monotonic time at which a RECOVERING voter (`lost_disk`) logs that no leader is found."""
        self.delayed_fetches: list[DelayedRaftFetch] = []
        self.ready = Ready()
        self.now_ms = 0.0
        self.first_records = first_records
        """KRaftVersion and Voters records that the log lacks: appended when this node next becomes leader (R-243)."""
        self.random = random
        """Function that returns a random number in [0, 1)."""

    # ------------------------------------------------------------------ queries

    @property
    def epoch(self) -> int:
        """Current epoch: the newest that this node knows."""
        return self.hard_state.epoch

    @property
    def leader_id(self) -> int:
        """Node id of the leader in the current epoch; -1 if unknown."""
        return leader_id_of(self.state, self.local_replica.id)

    def leader_id_for(self, asker_id: int) -> int:
        """Return the leader id for a response to node ``asker_id``; -1 if unknown or if that node is the leader.

        A JVM node would stop if it were named as a leader that it is not (R-257).
        """
        return NO_NODE_ID if self.leader_id == asker_id else self.leader_id

    @property
    def is_leader(self) -> bool:
        """True if this node is the leader of the current epoch."""
        return isinstance(self.state, RaftLeaderState)

    @property
    def deadline_ms(self) -> float:
        """Monotonic time in ms at which the next `Tick` is due at the latest; infinite if none is."""
        waits = list(self.requests.deadlines_ms(self.now_ms))
        if isinstance(self.state, RaftLeaderState) and self.state.pending_change is not None:
            waits.append(self.state.pending_change.deadline_ms)
        return min([self.state.deadline_ms, *waits, *(p.deadline_ms for p in self.delayed_fetches)])

    def can_reach(self, replica_id: int) -> bool:
        """Return True if a leader with this node id can be followed: a voter or a node with a known address (R-256)."""
        return replica_id in self.reachable_replicas or self.voters.find_voter(replica_id) is not None

    def add_reachable_replicas(self, replica_ids: Set[int]) -> None:
        """Add ids of replicas whose address is known, before the step in which one of them is the leader."""
        self.reachable_replicas |= replica_ids

    def set_first_records(self, records: tuple[Message, ...]) -> None:
        """Set the control records that this node appends after LeaderChangeMessage when it next becomes leader.

        Then they are cleared. The last one is a VotersRecord, from then on the current one; empty: no records.
        """
        self.first_records = records

    # ------------------------------------------------------------------ transitions

    def initialize(self, state: EpochState, hard: HardState) -> None:
        """Enter the initial state at the start; the legality of the transition is not checked."""
        self.started_ms, self.state, self.hard_state = self.now_ms, state, hard

    def random_election_deadline_ms(self) -> float:
        """Return a random monotonic time for the end of an election: one to two election timeouts from now."""
        return self.now_ms + self.timeouts.election_ms * (1 + self.random())

    @property
    def can_be_candidate(self) -> bool:
        """True if this node may be elected: a voter, or one whose removal from the voter set may be uncommitted.

        False while the voter is RECOVERING. Kafka's removed node never becomes a candidate again. But if it led two
        voters and stopped before the other one had the record, no other node can be elected: its log is the longest. It
        requests votes without counting its own (Ongaro's thesis, 4.2.2) until the record is committed (R-242).
        """
        if self.hard_state.voter_state == VoterState.RECOVERING:
            return False
        removed = (
            any(v.identifies(self.local_replica) for v in self.voters.previous)
            and self.high_watermark <= self.voters.offset
        )
        return removed or self.voters.is_voter(self.local_replica)

    @property
    def own_vote(self) -> dict[int, bool]:
        """Votes at the start of an election: this node's own, granted, if it is a voter; else none."""
        return {self.local_replica.id: True} if self.voters.is_voter(self.local_replica) else {}

    def random_peer(self, peers: list[int]) -> int:
        """Return a random element of ``peers``."""
        return peers[int(self.random() * len(peers))]

    def transition_to(self, state: EpochState, hard: HardState | None = None) -> None:
        """Enter a state of this epoch or, with ``hard``, of the epoch there; ``hard`` is persisted with this step.

        Requests in flight, backoffs and a snapshot download are cancelled. A leader that loses leadership completes its
        delayed fetches and a voter change with NOT_LEADER_OR_FOLLOWER.
        """
        assert type(state) in LEGAL_TRANSITIONS[type(self.state)], f"{self.state} cannot become {state}"
        if hard is not None:
            assert hard.epoch >= self.hard_state.epoch, "an epoch never goes back"
            assert type(state) in PERSISTED_STATES
            self.hard_state = hard._replace(voter_state=self._next_voter_state(state, hard))
        if isinstance(self.state, RaftLeaderState):
            self._complete_delayed_fetches_with(
                RaftFetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, NO_NODE_ID)
            )
            change = self.state.pending_change
            if change is not None and change.pending_request is not None:
                gone = VoterChangeResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, NO_NODE_ID)
                self.ready.replies.append(OutboundResponse(change.pending_request, gone))
        self.state = state
        self.requests.reset()

    def _next_voter_state(self, state: EpochState, hard: HardState) -> VoterState:
        """Return the voter state (recovery after a disk loss) after a transition to ``state``.

        An EMPTY_LOG voter (empty disk at start) becomes NORMAL as leader, and RECOVERING if it follows another leader.
        """
        if self.hard_state.voter_state != VoterState.EMPTY_LOG:
            return self.hard_state.voter_state
        if isinstance(state, RaftLeaderState):
            return VoterState.NORMAL
        return VoterState.EMPTY_LOG if hard.leader_id == NO_NODE_ID else VoterState.RECOVERING

    def transition_to_unattached(self, epoch: int, leader_id: int = NO_NODE_ID) -> None:
        """Become Unattached in a higher epoch, whose leader is unknown (-1) or has no known address.

        A running election timer continues (R-203), or a new one starts; an observer has none.
        """
        assert epoch > self.epoch
        remaining = isinstance(self.state, UnattachedState | ProspectiveState | CandidateState | ResignedState)
        deadline = self.state.deadline_ms if remaining else NO_DEADLINE_MS
        if not self.can_be_candidate:
            deadline = self.leader_search_deadline_ms
        elif deadline == NO_DEADLINE_MS:
            deadline = self.random_election_deadline_ms()
        self.transition_to(UnattachedState(deadline), HardState(epoch, leader_id))

    def transition_to_follower(self, epoch: int, leader_id: int) -> None:
        """Become Follower of the leader of an epoch; this node's vote in that epoch is preserved."""
        voted = self.hard_state.voted_key if epoch == self.epoch else None
        later = self.now_ms + self.timeouts.fetch_ms
        self.refused_leader_id = NO_NODE_ID
        # it is not removed when the leader leaves the voter set, as it may still lead
        self.reachable_replicas.add(leader_id)
        self.transition_to(
            RaftFollowerState(leader_id, later, voter_request_due_ms=later), HardState(epoch, leader_id, voted)
        )

    def add_voted_state(self, candidate: ReplicaKey) -> None:
        """Vote for a candidate of this epoch and become NORMAL, persisted in this step; restart the election timer."""
        self.hard_state = HardState(self.epoch, self.hard_state.leader_id, candidate)
        assert isinstance(self.state, UnattachedState | ProspectiveState)
        self.state.deadline_ms = self.random_election_deadline_ms()

    def set_voter_state(self, voter_state: VoterState) -> None:
        """Set the recovery state of this voter (see `lost_disk`)."""
        self.hard_state = self.hard_state._replace(voter_state=voter_state)

    def set_refused_leader(self, leader_id: int) -> None:
        """Record that a leader's port refused a connection: it is not followed again after a lost pre-vote."""
        self.refused_leader_id = leader_id

    def set_leader_search_deadline(self, deadline_ms: float) -> None:
        """Set the monotonic time at which a missing leader is logged."""
        self.leader_search_deadline_ms = deadline_ms

    def reset_fetch_timeout(self) -> None:
        """Restart the fetch timeout, after the leader has responded."""
        assert isinstance(self.state, RaftFollowerState)
        self.state.reset_fetch_timeout(self.now_ms + self.timeouts.fetch_ms)

    def load_snapshot(self, snapshot: tuple[int, int]) -> None:
        """Order the driver to download a snapshot (end offset, epoch) from the leader; fetches of the log pause."""
        self.requests.start_snapshot(snapshot)
        self.ready.load_snapshot = snapshot

    def restart_fetching(self) -> None:
        """Cancel an observer's or RECOVERING voter's fetch and snapshot download, and restart its fetch timeout."""
        self.state.deadline_ms = self.now_ms + self.timeouts.fetch_ms
        self.requests.cancel()

    def maybe_transition(self, epoch: int, leader_id: int) -> None:
        """Adopt the epoch and leader (-1: unknown) in another node's message, if newer (R-209).

        With a higher epoch this node becomes Follower, or Unattached if the leader is unknown or not reachable; with
        its own epoch it follows a leader that it did not know. A message with this node as leader is wrong, and only
        logged, if at all; so is another leader than the known one of this epoch.

        A prospective node that learns of its former leader continues: nodes that reject its pre-vote have that leader
        in their responses too (``ProspectiveState`` stores it, so that ``quorum.hasLeader`` holds).
        """
        if leader_id == self.local_replica.id and epoch > self.epoch and not self.voters.is_voter(self.local_replica):
            self.report_duplicate_id(epoch, f"a node {leader_id} leads in epoch {epoch}, and it is not this one")
        if epoch < self.epoch or leader_id == self.local_replica.id:
            return
        if epoch == self.epoch and isinstance(self.state, ProspectiveState) and leader_id == self.hard_state.leader_id:
            return
        follows = leader_id >= 0 and self.can_reach(leader_id)
        if epoch > self.epoch and not follows:
            self.transition_to_unattached(epoch, max(leader_id, NO_NODE_ID))
        elif epoch > self.epoch or (follows and self.leader_id == NO_NODE_ID):
            known = self.hard_state.leader_id if epoch == self.epoch else NO_NODE_ID
            if known in (NO_NODE_ID, leader_id):
                self.transition_to_follower(epoch, leader_id)
            else:
                self.ready.report_violation(f"Two leaders in epoch {epoch}: {known} and {leader_id}")

    def report_duplicate_id(self, epoch: int, text: str) -> None:
        """Set ``text`` as the message to log, that another node seems to have this node's id; once per epoch."""
        if epoch > self.duplicate_id_epoch:
            self.duplicate_id_epoch = epoch
            self.ready.report(logging.WARNING, f"{text}: each node needs its own node.id")

    # ------------------------------------------------------------------ delayed fetches

    @property
    def advertised_high_watermark(self) -> int:
        """High watermark for followers; -1 until a record of this leader's epoch is committed (R-221).

        Only on a leader.
        """
        assert isinstance(self.state, RaftLeaderState)
        return self.high_watermark if self.high_watermark > self.state.epoch_start_offset else -1

    def _complete_delayed_fetches_with(self, answer: RaftFetchResponse) -> None:
        self.ready.replies += [OutboundResponse(p.pending_request, answer) for p in self.delayed_fetches]
        self.delayed_fetches = []

    def complete_delayed_fetches(self) -> None:
        """Respond to all delayed fetches, new records or not, with the current log end and high watermark (R-220)."""
        parked, self.delayed_fetches = self.delayed_fetches, []
        high_watermark = self.advertised_high_watermark
        for p in parked:
            self.ready.replies.append(
                OutboundResponse(
                    p.pending_request,
                    read_for_fetch(p.request, self.epoch, self.local_replica.id, self.log_summary, high_watermark),
                )
            )

    def expire_delayed_fetches(self) -> None:
        """Respond to expired fetches with the response computed on arrival (R-220)."""
        for p in self.delayed_fetches:
            if p.deadline_ms <= self.now_ms:
                self.ready.replies.append(OutboundResponse(p.pending_request, p.initial_response))
        self.delayed_fetches = [p for p in self.delayed_fetches if p.deadline_ms > self.now_ms]

    # ------------------------------------------------------------------ log

    def append(self, count: int, batch: object = None, controls: tuple[Message, ...] = ()) -> int:
        """Append a batch as leader of the epoch, and complete the delayed fetches; return the batch's first offset.

        For the driver to write (`ready`): ``batch``, encoded, or ``controls``, to encode. ``count``: number of records.
        """
        first = self.log_summary.append(self.epoch, count)
        self.ready.appends.append(events.LogAppend(first, count, self.epoch, batch, controls))
        self.complete_delayed_fetches()
        return first

    def truncate(self, offset: int) -> None:
        """Truncate the log and its voter sets to ``offset``, which is never below the high watermark (R-224)."""
        assert offset >= self.high_watermark, f"cut to {offset} below the high watermark {self.high_watermark}"
        if offset < self.log_summary.end_offset:
            self.log_summary.truncate(offset)
            self.voters.truncate(offset)
            self.flushed_offset = min(self.flushed_offset, offset)
            self.ready.truncate = offset

    def update_high_watermark(self) -> None:
        """Advance the leader's high watermark to the majority's end offset, if that is in its own epoch (R-227)."""
        assert isinstance(self.state, RaftLeaderState)
        end = majority_end_offset(self.state, self.voters)
        if end > self.state.epoch_start_offset:
            self.raise_high_watermark(end)

    def update_local_end_offset(self) -> None:
        """Count the leader's own flushed offset for the high watermark, if it is a voter; this may advance it."""
        assert isinstance(self.state, RaftLeaderState)
        own = self.voters.find_voter(self.local_replica.id)
        if own is not None and own.identifies(self.local_replica):
            self.state.replicas.setdefault(own, ReplicaProgress()).end_offset = self.flushed_offset
            self.update_high_watermark()

    def raise_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to ``offset``; no effect if it is there or above.

        A leader completes its delayed fetches.
        """
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.ready.committed = offset
            if self.is_leader:
                self.complete_delayed_fetches()
