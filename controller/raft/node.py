"""A raft node: what it knows, and how it passes from one state to the next. The rules that drive it lie beside it.

Source: ``QuorumState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ottla.controller.raft import events
from ottla.controller.raft.chain import EpochChain, VoterHistory
from ottla.controller.raft.events import (
    NOBODY,
    AddVoter,
    Age,
    Fetch,
    FetchAnswer,
    HardState,
    Ready,
    RemoveVoter,
    ReplicaKey,
    Reply,
    UpdateVoter,
    VoterAnswer,
)
from ottla.controller.raft.leading import Parked, majority_end, serve
from ottla.controller.raft.states import (
    DURABLE,
    FOREVER_MS,
    LEGAL,
    Candidate,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    State,
    Unattached,
    leader_of,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages import control_records as ctl
from ottla.wire.schema import Message


class Timeouts(NamedTuple):
    """Kafka's settings ``controller.quorum.*`` and constants, milliseconds but for the last."""

    election_ms: float = 1000
    fetch_ms: float = 2000
    backoff_max_ms: float = 1000
    retry_ms: float = 20
    max_wait_ms: int = 500
    request_ms: float = 2000
    fetch_bytes: int = 1024 * 1024
    """So much of the log is asked for at a time, a batch at least."""

    @property
    def check_quorum_ms(self) -> float:
        """How long a leader goes on without a majority (R228)."""
        return self.fetch_ms * 1.5


DEFAULT_TIMEOUTS = Timeouts()
LONELY_MS = 10_000
"""How long a voter that lost its disk looks for a leader before it says that there is none."""


class RaftNode:
    """One node of the quorum. Hard state and log are the shell's to keep; ``chain`` mirrors the log."""

    twin_epoch = -1
    """The newest epoch in which another node seemed to have this one's id."""

    def __init__(
        self,
        me: ReplicaKey,
        voters: VoterHistory,
        hard: HardState,
        chain: EpochChain,
        chance: Callable[[], float],
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
        first_records: tuple[Message, ...] = (),
        bootstrap: tuple[int, ...] = (),
        entry: ctl.VotersRecordVoter | None = None,
        *,
        listener: str = "CONTROLLER",
        auto_join: bool = False,
    ) -> None:
        self.me = me
        self.voters = voters
        self.hard = hard
        self.chain = chain
        self.timeouts = timeouts
        self.high_watermark = -1
        self.synced = chain.end
        """Everything below is on disk here."""
        self.state: State = Unattached(FOREVER_MS)
        self.asked: dict[int, float] = {}
        """Voter -> when it may be asked (again); never, while a request to it is under way."""
        self.bootstrap = tuple(peer for peer in bootstrap if peer != me.id)
        """Who may be asked for the leader: -2, -3, ... for bootstrap servers, ids of static voters (R223)."""
        self.addressed: set[int] = set()
        """Replicas outside the voter set whose address the shell has, who puts them here before the step that names
        them as leader: nobody follows a leader it cannot reach (R256). Who was followed once stays here."""
        self.gone = NOBODY
        """A leader whose process was seen gone: nobody goes back to it before it is heard of."""
        self.entry = entry
        """This node as it stands among the voters, or would; None for a broker only."""
        self.listener = listener
        """Every voter has an endpoint of that name: the first of ``controller.listener.names``."""
        self.auto_join = auto_join
        self.offering: AddVoter | RemoveVoter | UpdateVoter | None = None
        """What the leader is being told of this node; nothing is fetched meanwhile."""
        self.fetching: Fetch | None = None
        """The fetch that is under way: answers to any other come too late."""
        self.fetching_peer = NOBODY
        self.fetching_until_ms = FOREVER_MS
        """When the peer that was asked last is taken for dumb."""
        self.heard: set[int] = set()
        """Who answered since this life began, while the voter is not grown."""
        self.born_ms = 0.0
        """When this life began."""
        self.lonely_ms = FOREVER_MS
        """When a voter that is not grown says that no leader is found."""
        self.loading: tuple[int, int] | None = None
        """The snapshot that is being fetched from the leader."""
        self.parked: list[Parked] = []
        self.ready = Ready()
        self.now_ms = 0.0
        self.first_records = first_records
        """KRaftVersion and Voters, where the log does not have them yet: the first leader appends them (R243)."""
        self.chance = chance
        """Gives a number of [0, 1)."""

    # ------------------------------------------------------------------ what the shell sees

    @property
    def epoch(self) -> int:
        """The newest epoch this node knows."""
        return self.hard.epoch

    @property
    def leader_id(self) -> int:
        """Who leads, as far as is known; -1."""
        return leader_of(self.state, self.me.id)

    def leader_for(self, asker_id: int) -> int:
        """Who leads, as the asker may be told: never itself, for it knows better, and a JVM would end (R257)."""
        return NOBODY if self.leader_id == asker_id else self.leader_id

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return isinstance(self.state, Leader)

    @property
    def deadline_ms(self) -> float:
        """When the next `Tick` is due at the latest."""
        waits = [at for at in self.asked.values() if at > self.now_ms]
        if self.fetching is not None or self.offering is not None:
            waits.append(self.fetching_until_ms)
        if isinstance(self.state, Leader) and self.state.change is not None:
            waits.append(self.state.change.until_ms)
        return min([self.state.deadline_ms, *waits, *(p.until_ms for p in self.parked)])

    def can_reach(self, replica_id: int) -> bool:
        """Whether a leader of that id could be followed: a voter, or one whose address the shell has (R256)."""
        return replica_id in self.addressed or self.voters.find(replica_id) is not None

    # ------------------------------------------------------------------ transitions

    def random_election_ms(self) -> float:
        """Between once and twice the election timeout from now."""
        return self.now_ms + self.timeouts.election_ms * (1 + self.chance())

    @property
    def may_stand(self) -> bool:
        """Whether this node may be elected: a voter, or one that was removed by a record that may not be committed.

        Kafka's removed node never stands again. But where it led two voters and died before the other one had the
        record, nobody else can be elected: its log is the longest. It asks without counting its own voice (Ongaro's
        thesis, 4.2.2), and goes once the record is committed (R242).
        """
        if self.hard.age == Age.LEARNING:
            return False
        removed = any(v.names(self.me) for v in self.voters.previous) and self.high_watermark <= self.voters.offset
        return removed or self.voters.has(self.me)

    @property
    def own_voice(self) -> dict[int, bool]:
        """The answers an election begins with."""
        return {self.me.id: True} if self.voters.has(self.me) else {}

    def any_of(self, peers: list[int]) -> int:
        """One of several, by chance."""
        return peers[int(self.chance() * len(peers))]

    def become(self, state: State, hard: HardState | None = None) -> None:
        """Enter a state; what it says that must survive goes to disk with this step."""
        assert type(state) in LEGAL[type(self.state)], f"{self.state} cannot become {state}"
        if hard is not None:
            assert hard.epoch >= self.hard.epoch, "an epoch never goes back"
            assert type(state) in DURABLE
            self.hard = hard._replace(age=self._age(state, hard))
        if isinstance(self.state, Leader):
            self._answer_parked(FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, NOBODY))
            change = self.state.change
            if change is not None and change.ticket is not None:
                gone = VoterAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch, NOBODY)
                self.ready.replies.append(Reply(change.ticket, gone))
        self.state = state
        self.asked.clear()
        self.fetching = self.loading = self.offering = None

    def _age(self, state: State, hard: HardState) -> Age:
        """Newborns that elect one of them are grown; who hears of a leader they did not elect has to learn."""
        if self.hard.age != Age.NEWBORN:
            return self.hard.age
        if isinstance(state, Leader):
            return Age.GROWN
        return Age.NEWBORN if hard.leader_id == NOBODY else Age.LEARNING

    def to_unattached(self, epoch: int, leader_id: int = NOBODY) -> None:
        """A higher epoch is known, its leader is not, or not where it is. An election timer that runs goes on (R203).

        Who is no voter has none.
        """
        assert epoch > self.epoch
        remaining = isinstance(self.state, Unattached | Prospective | Candidate | Resigned)
        deadline = self.state.deadline_ms if remaining else FOREVER_MS
        if not self.may_stand:
            deadline = self.lonely_ms
        elif deadline == FOREVER_MS:
            deadline = self.random_election_ms()
        self.become(Unattached(deadline), HardState(epoch, leader_id))

    def to_follower(self, epoch: int, leader_id: int) -> None:
        """Follow the leader of an epoch; the vote given in that epoch stays known."""
        voted = self.hard.voted if epoch == self.epoch else None
        later = self.now_ms + self.timeouts.fetch_ms
        self.gone = NOBODY
        self.addressed.add(leader_id)  # it stays so when the leader leaves the voters, as it may while it leads (R242)
        self.become(Follower(leader_id, later, offer_ms=later), HardState(epoch, leader_id, voted))

    def heard_leader(self) -> None:
        """The leader this node follows lives: its time begins anew."""
        assert isinstance(self.state, Follower)
        self.state.deadline_ms = self.now_ms + self.timeouts.fetch_ms
        self.state.fetched, self.state.is_its_turn = True, False

    def follow_news(self, epoch: int, leader_id: int) -> None:
        """Another node names an epoch and perhaps its leader (R209). Who says it is this node is wrong.

        A prospective node that hears of the leader it lost goes on asking: who refuses it names that leader too
        (``ProspectiveState`` remembers it, so that ``quorum.hasLeader`` holds).
        """
        if leader_id == self.me.id and epoch > self.epoch and not self.voters.has(self.me):
            self.tell_twin(epoch, f"a node {leader_id} leads in epoch {epoch}, and it is not this one")
        if epoch < self.epoch or leader_id == self.me.id:
            return
        if epoch == self.epoch and isinstance(self.state, Prospective) and leader_id == self.hard.leader_id:
            return
        follows = leader_id >= 0 and self.can_reach(leader_id)
        if epoch > self.epoch and not follows:
            self.to_unattached(epoch, max(leader_id, NOBODY))
        elif epoch > self.epoch or (follows and self.leader_id == NOBODY):
            known = self.hard.leader_id if epoch == self.epoch else NOBODY
            if known in (NOBODY, leader_id):
                self.to_follower(epoch, leader_id)
            else:
                self.ready.doubt = f"two leaders in epoch {epoch}: {known}, and now {leader_id} is said to lead"

    def tell_twin(self, epoch: int, text: str) -> None:
        """Another node seems to have this one's id: said once an epoch, for what it asks is asked again and again."""
        if epoch > self.twin_epoch:
            self.twin_epoch = epoch
            self.ready.news = (logging.WARNING, f"{text}: each node needs an id of its own")

    # ------------------------------------------------------------------ fetches that wait here

    @property
    def told_high_watermark(self) -> int:
        """What a leader tells: -1 until something of its own epoch is committed (R221)."""
        assert isinstance(self.state, Leader)
        return self.high_watermark if self.high_watermark > self.state.epoch_start else -1

    def _answer_parked(self, answer: FetchAnswer) -> None:
        self.ready.replies += [Reply(p.ticket, answer) for p in self.parked]
        self.parked = []

    def wake_parked(self) -> None:
        """There is news for every parked fetch: each is looked at afresh (R220)."""
        parked, self.parked = self.parked, []
        told = self.told_high_watermark
        for p in parked:
            self.ready.replies.append(Reply(p.ticket, serve(p.request, self.epoch, self.me.id, self.chain, told)))

    def expire_parked(self) -> None:
        """Fetches whose time is over get the answer of their arrival (R220)."""
        for p in self.parked:
            if p.until_ms <= self.now_ms:
                self.ready.replies.append(Reply(p.ticket, p.first))
        self.parked = [p for p in self.parked if p.until_ms > self.now_ms]

    # ------------------------------------------------------------------ log

    def append(self, count: int, batch: object = None, controls: tuple[Message, ...] = ()) -> int:
        """Append as leader, under the current epoch; gives the first offset. Whoever waits for records gets them."""
        first = self.chain.append(self.epoch, count)
        self.ready.append.append(events.Append(first, count, self.epoch, batch, controls))
        self.wake_parked()
        return first

    def truncate(self, offset: int) -> None:
        """Cut the log: what was committed is never cut (R224)."""
        assert offset >= self.high_watermark, f"cut to {offset} below the high watermark {self.high_watermark}"
        if offset < self.chain.end:
            self.chain.truncate(offset)
            self.voters.truncate(offset)
            self.synced = min(self.synced, offset)
            self.ready.truncate = offset

    def commit(self) -> None:
        """R227: only what a majority has, and only once it reaches into this leader's own epoch."""
        assert isinstance(self.state, Leader)
        end = majority_end(self.state, self.voters)
        if end > self.state.epoch_start:
            self.raise_high_watermark(end)

    def count_own_end(self) -> None:
        """What is on the disk here counts for this node where it is a voter."""
        assert isinstance(self.state, Leader)
        own = self.voters.find(self.me.id)
        if own is not None and own.names(self.me):
            self.state.ends.setdefault(own, Progress()).end = self.synced
            self.commit()

    def raise_high_watermark(self, offset: int) -> None:
        """What is committed never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.ready.committed = offset
            if self.is_leader:
                self.wake_parked()
