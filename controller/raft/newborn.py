"""A voter whose metadata log was made anew, where the settings name others that vote too: it may have voted before.

While voters are fixed by configuration (kraft.version 0) a replica is known by its id alone, and nobody sees that a
disk was emptied. What such a voter said to former leaders and candidates it has forgotten; its vote could elect a
leader without what was committed by it, or two in one epoch. So a *newborn* voter votes only for an empty log: in a
quorum that never was, all begin like that, and the first vote ends it. Where anybody shows it that there was a quorum,
it is *learning*: it neither votes nor stands before a leader has given it everything there is.

Nor does what it fetches count before that leader is known to be no older than what it may have voted for: once every
other voter has answered since it began, for each answer raises the epoch to its own; or once it was silent for longer
than a candidate waits for votes and a leader goes on without a majority. Until then it fetches as nobody.

Kafka has no such protection. A node alone, and one that needs none of this, does not load it.
"""

from __future__ import annotations

import logging

from ottla.controller.raft.events import (
    NOBODY,
    Age,
    Answer,
    Fetch,
    FetchAnswer,
    ReplicaKey,
    SnapshotAnswer,
    Vote,
    VoterAnswer,
)
from ottla.controller.raft.node import LONELY_MS, RaftNode
from ottla.controller.raft.states import FOREVER_MS, Candidate, Follower, Prospective, Unattached

LedAnswer = Answer | FetchAnswer | SnapshotAnswer | VoterAnswer

DRIFT = 1.1
"""How much faster this clock may go than the others'."""


def grants(raft: RaftNode, vote: Vote) -> bool:
    """Whether a voter that is not grown may vote so; a log that is not empty tells it that there was a quorum."""
    if (vote.last_epoch, vote.end_offset) != (0, 0):
        learn(raft)
    return raft.hard.age == Age.NEWBORN


def learn(raft: RaftNode) -> None:
    """There was a quorum before: wait for its leader, and ask the others only how far they are."""
    if raft.hard.age != Age.NEWBORN:
        return
    raft.hard = raft.hard._replace(age=Age.LEARNING)
    if isinstance(raft.state, Unattached | Prospective | Candidate):
        raft.become(Unattached(raft.lonely_ms), raft.hard)


def has_asked_all(raft: RaftNode, prospective: Prospective) -> bool:
    """Whether every other voter said whether it would vote, or cannot be asked: one that has a log might be left."""
    election = prospective.election
    return all(v.id in election.answers or v.id in election.missing for v in raft.voters.current)


def fetches_as(raft: RaftNode) -> ReplicaKey:
    """A grown voter itself, and another one once what it fetches may count; nobody before."""
    if raft.hard.age == Age.GROWN:
        return raft.me
    timeouts = raft.timeouts
    silent_ms = 2 * (timeouts.election_ms + timeouts.check_quorum_ms) * DRIFT
    others = {v.id for v in raft.voters.current if v.id != raft.me.id}
    may = others <= raft.heard or raft.now_ms >= raft.born_ms + silent_ms
    return raft.me if may else ReplicaKey(NOBODY)


def question(raft: RaftNode, peer: int) -> Vote | None:
    """What a learning voter asks one it has not heard of: would you have me? A refusal names its epoch.

    The leader it follows tells that with what is fetched.
    """
    led = isinstance(raft.state, Follower) and raft.state.leader_id == peer
    if raft.hard.age != Age.LEARNING or led or peer in raft.heard:
        return None
    return Vote(raft.me, raft.epoch, raft.chain.last_epoch, raft.chain.end, True, raft.voters.find(peer))


def heard(raft: RaftNode, peer: int, answer: LedAnswer) -> LedAnswer:
    """A voter answered something this node asked in this life: with what it is given, its epoch is known.

    It may name this node, which it does not know by its question, as the leader it was.
    """
    raft.heard.add(peer)
    if isinstance(raft.state, Follower | Unattached):
        raft.asked.pop(peer, None)
    if answer.leader_id != raft.me.id:
        return answer
    learn(raft)
    return answer._replace(leader_id=NOBODY)


def fetched(raft: RaftNode, request: Fetch, answer: FetchAnswer, *, nothing_new: bool) -> None:
    """All that the leader had when it was asked lies on the disk here: this voter is as good as any other again."""
    if request.replica == raft.me and nothing_new and answer.offset < 0:
        raft.hard = raft.hard._replace(age=Age.GROWN)


def tell(raft: RaftNode, before: Age) -> None:
    """What a change of the age means, for the log; who learns looks for a leader from now on."""
    if raft.hard.age == Age.LEARNING:
        raft.lonely_ms = raft.now_ms + LONELY_MS
        text = "this voter's metadata log is new, the quorum is not: it does not vote before a leader has filled it"
        raft.ready.news = (logging.INFO, text)
    elif before == Age.LEARNING:
        raft.ready.news = (logging.INFO, "this voter has everything that its leader has: it votes")


def lonely(raft: RaftNode) -> None:
    """No leader is found: where most voters are like this one nobody can be elected any more. It is said once."""
    raft.lonely_ms = FOREVER_MS
    if raft.hard.age == Age.LEARNING and isinstance(raft.state, Unattached):
        text = (
            "this voter's metadata log is new and no leader is found that could fill it. Where most voters lost their "
            "disks none is elected: start one that has its data with controller.quorum.voters naming it alone "
            "(see ottla cluster recover)"
        )
        raft.ready.news = (logging.WARNING, text)
