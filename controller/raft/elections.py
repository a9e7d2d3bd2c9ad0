"""How a node becomes leader, and how it stops being one.

Source: the ``poll...`` methods of ``KafkaRaftClient.java``, ``QuorumState.java`` (apache/kafka 4.3.1).
"""

from __future__ import annotations

from ottla.controller.raft.chain import voter_keys
from ottla.controller.raft.events import NOBODY, Age, BeginEpoch, EndEpoch, HardState, Request, Send, Vote
from ottla.controller.raft.leading import successors
from ottla.controller.raft.node import LONELY_MS, RaftNode
from ottla.controller.raft.states import (
    FOREVER_MS,
    Candidate,
    Election,
    Follower,
    Leader,
    Progress,
    Prospective,
    Resigned,
    Unattached,
)
from ottla.wire.messages import control_records as ctl

TURNS_MS = 150
"""How long all followers together take for their turns at most."""


def start(raft: RaftNode) -> None:
    """Take up the state that was left (R204); no leadership is ever restored, and a lone voter elects itself (R205).

    Who voted for itself and then followed another in the same epoch follows it again. Kafka's node asks for votes then,
    with a log that reaches into the epoch it asks for, and ends by the answer it gets (R254).
    """
    hard, me = raft.hard, raft.me
    raft.born_ms = raft.now_ms
    if hard.age != Age.GROWN:
        raft.lonely_ms = raft.now_ms + LONELY_MS
    election_ms = raft.random_election_ms()
    if hard.epoch < raft.chain.last_epoch:
        raft.hard = HardState(raft.chain.last_epoch, age=hard.age)
        raft.state = Unattached(election_ms)
    elif hard.leader_id == me.id:
        raft.state = Resigned(election_ms)
    elif hard.leader_id == NOBODY and hard.voted is not None and hard.voted.names(me) and raft.may_stand:
        raft.state = Candidate(election_ms, Election(raft.own_voice))
    elif hard.leader_id >= 0 and raft.can_reach(hard.leader_id):
        later = raft.now_ms + raft.timeouts.fetch_ms
        raft.state = Follower(hard.leader_id, later, offer_ms=later)
    else:
        raft.state = Unattached(election_ms)
    if not raft.may_stand:
        if isinstance(raft.state, Unattached):
            raft.state.deadline_ms = raft.lonely_ms
    elif [v.id for v in raft.voters.current] == [me.id]:
        if isinstance(raft.state, Candidate):
            count(raft)
        else:
            raft.state = Unattached(election_ms)
            to_prospective(raft)
    elif isinstance(raft.state, Unattached) and hard.epoch == 0 and raft.chain.end == 0:
        raft.state.deadline_ms = raft.now_ms + turn_ms(raft)  # nobody has ever led: there is none to wait for


def tick(raft: RaftNode) -> None:
    """Whoever's time is over gives up what it was."""
    raft.expire_parked()
    under_way = raft.fetching is not None or raft.offering is not None
    if under_way and raft.now_ms >= raft.fetching_until_ms:
        from ottla.controller.raft import following  # a node alone does without

        following.unreachable(raft, raft.fetching_peer)
    state = raft.state
    if raft.now_ms < state.deadline_ms:
        return
    match state:
        case Follower() if raft.may_stand:
            miss_leader(raft, state)
        case Unattached() if raft.may_stand:
            to_prospective(raft)
        case Follower() | Unattached():
            if raft.now_ms >= raft.lonely_ms:
                from ottla.controller.raft import newborn

                newborn.lonely(raft)
            state.deadline_ms = raft.now_ms + raft.timeouts.fetch_ms  # an observer goes on asking
            raft.fetching = raft.loading = raft.offering = None
        case Prospective(election=election) if election.won(raft.voters.majority):
            to_candidate(raft)  # a newborn has waited long enough for the others
        case Prospective():
            give_up(raft)
        case Candidate():
            to_prospective(raft)
        case Leader():
            resign(raft)  # no majority has listened for long (R228)
        case Resigned():
            votes = raft.may_stand
            raft.become(Unattached(raft.now_ms if votes else FOREVER_MS), HardState(raft.epoch + 1))
            if votes:
                to_prospective(raft)


def turn_ms(raft: RaftNode, lost: int = NOBODY) -> float:
    """How long this voter waits until it is its turn to ask for votes, once ``lost`` leads no more."""
    others = sorted(v.id for v in raft.voters.current if v.id != lost)
    return TURNS_MS * others.index(raft.me.id) / len(others) if raft.me.id in others else 0


def miss_leader(raft: RaftNode, follower: Follower) -> None:
    """The leader was not heard for too long: ask whether an election would be won, when it is this node's turn.

    All followers lose a leader at the same moment. In Kafka they also ask at the same moment, each gets the pre-votes,
    votes for itself, and with an even number of them nobody wins for one or two seconds. Here they take turns by their
    ids, a few milliseconds each, and give their pre-votes while they wait.
    """
    wait_ms = 0 if follower.is_its_turn else turn_ms(raft, follower.leader_id)
    if wait_ms == 0:
        to_prospective(raft)
        return
    follower.is_its_turn, follower.fetched = True, False
    follower.deadline_ms = raft.now_ms + wait_ms


def leader_gone(raft: RaftNode, peer: int) -> None:
    """A leader whose process is gone counts as one that was not heard for the whole fetch timeout; Kafka waits for it.

    Nothing hangs on its being true: a leader that lives goes on as soon as a pre-vote is lost.
    """
    state = raft.state
    if isinstance(state, Follower) and state.leader_id == peer and raft.may_stand and not state.is_its_turn:
        raft.gone = peer
        miss_leader(raft, state)


def to_prospective(raft: RaftNode) -> None:
    """Ask whether an election would be won."""
    raft.become(Prospective(raft.random_election_ms(), Election(raft.own_voice)))
    count(raft)


def give_up(raft: RaftNode) -> None:
    """A prospective election is lost: back to the old leader if there is one, with a fresh timer (R208).

    Else a refused node waits for a new while, and one whose time is over asks again at once: none remains (R203).
    """
    assert isinstance(raft.state, Prospective)
    known = raft.hard.leader_id
    if known >= 0 and known not in (raft.me.id, raft.gone) and raft.can_reach(known):
        raft.to_follower(raft.epoch, known)
    elif raft.state.election.lost(len(raft.voters.current), raft.voters.majority):
        raft.become(Unattached(raft.random_election_ms()), raft.hard)
    else:
        raft.become(Unattached(raft.now_ms), raft.hard)
        to_prospective(raft)


def to_candidate(raft: RaftNode) -> None:
    """Begin an election, in an epoch of its own."""
    chosen = Candidate(raft.random_election_ms(), Election(raft.own_voice))
    raft.become(chosen, HardState(raft.epoch + 1, NOBODY, raft.me))
    count(raft)


def count(raft: RaftNode) -> None:
    """Look at the votes: won, lost, or wait."""
    state, majority = raft.state, raft.voters.majority
    match state:
        case Prospective(election=election) if election.won(majority):
            if raft.hard.age == Age.GROWN or _has_asked_all(raft, state):
                to_candidate(raft)
        case Prospective(election=election) if election.lost(len(raft.voters.current), majority):
            give_up(raft)
        case Candidate(election=election) if election.won(majority):
            lead(raft, tuple(i for i, granted in election.answers.items() if granted))
        case _:
            pass  # a beaten candidate waits out its timer (R215)


def _has_asked_all(raft: RaftNode, state: Prospective) -> bool:
    from ottla.controller.raft import newborn

    return newborn.has_asked_all(raft, state)


def lead(raft: RaftNode, granted: tuple[int, ...]) -> None:
    """Begin an epoch: the first record says who leads it, and by whose votes (R229)."""
    state = Leader(raft.chain.end, raft.now_ms + raft.timeouts.check_quorum_ms, granted)
    if len(raft.voters.current) == 1:
        state.deadline_ms = FOREVER_MS
    if raft.voters.kraft_version < 1 and raft.entry is not None:
        state.told[raft.me.id] = raft.entry
    state.ends = {v: Progress() for v in raft.voters.current}
    raft.become(state, HardState(raft.epoch, raft.me.id))
    voters = [ctl.LeaderChangeMessageVoter(v.id) for v in raft.voters.current]
    yes = [v for v in voters if v.voter_id in granted]
    controls = (ctl.LeaderChangeMessage(0, raft.me.id, voters, yes), *raft.first_records)
    first = raft.append(len(controls), controls=controls)
    if raft.first_records:
        record = raft.first_records[-1]
        assert isinstance(record, ctl.VotersRecord)
        raft.voters.add(first + len(controls) - 1, voter_keys(record), record)
        raft.first_records = ()


def resign(raft: RaftNode) -> None:
    """Let go of leadership and tell the others; whoever has most shall be first to follow (R210, R215)."""
    if isinstance(raft.state, Leader):
        raft.become(Resigned(raft.random_election_ms(), successors(raft.state, raft.me, raft.voters)))


def request_for(raft: RaftNode, peer: int) -> Request | None:
    """What a state has to say to another voter, again and again until it is answered."""
    state, me, chain = raft.state, raft.me, raft.chain
    key = raft.voters.find(peer)
    match state:
        case Prospective(election=election) | Candidate(election=election):
            if peer in election.answers or election.lost(len(raft.voters.current), raft.voters.majority):
                return None
            pre = isinstance(state, Prospective)
            return Vote(me, raft.epoch, chain.last_epoch, chain.end, pre, key)
        case Leader():
            assert key is not None
            fetched_ms = state.ends.get(key, Progress()).fetched_ms
            silent = fetched_ms < 0 or raft.now_ms - fetched_ms >= raft.timeouts.fetch_ms / 2
            return BeginEpoch(me.id, raft.epoch, key) if silent else None
        case Resigned() if peer not in state.told:
            return EndEpoch(me.id, raft.epoch, state.successors)
        case Follower() | Unattached() if raft.hard.age == Age.LEARNING:
            from ottla.controller.raft import newborn

            return newborn.question(raft, peer)
        case _:
            return None


def ask_around(raft: RaftNode) -> None:
    """Send what the state has to say to every voter that is not being asked already."""
    if not isinstance(raft.state, Prospective | Candidate | Leader | Resigned) and raft.hard.age != Age.LEARNING:
        return
    for voter in raft.voters.current:
        if voter.id == raft.me.id or raft.asked.get(voter.id, 0) > raft.now_ms:
            continue
        request = request_for(raft, voter.id)
        if request is not None:
            raft.asked[voter.id] = FOREVER_MS
            raft.ready.sends.append(Send(voter.id, request))
        elif isinstance(raft.state, Leader):
            raft.asked[voter.id] = raft.now_ms + raft.timeouts.fetch_ms / 2
