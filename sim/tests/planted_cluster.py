"""Bugs planted in the rules between several nodes, to see whether the simulator finds them: as `sim.tests.planted`.

``python -m sim.tests.planted_cluster NAME``: break it, and run seeds until a promise is broken. Status 0: found, by a
violation of one of the names it may have; 1: not within its seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.broker.replica import fetcher, following
from ottla.broker.replica.partition import Committed, Leading, PendingExpand, PendingShrink
from ottla.broker.replica.replica import Replica
from ottla.controller import leadership
from ottla.controller.raft import answers, events, votes
from ottla.controller.raft.node import RaftNode
from ottla.controller.raft.shell import Raft
from ottla.controller.raft.store import MetadataStore
from ottla.log import recovery
from ottla.log.partition_log import PartitionLog
from ottla.log.producers import ProducerStates

SEEDS = 100
RUN_S = 20.0
LOST = (
    "lost unseen lost-write inconsistent-offsets StrongIsr EnoughInSync copies-differ out-of-order duplicate "
    "hole disorder ghost offset-back nonmonotonic-send nonmonotonic-poll isr-not-full stuck MonotonicHighWatermark"
)
QUORUM = "SingleLeaderPerEpoch CommittedNeverLost MonotonicHighWatermark copies-differ lost no-start behind"


class Plant(NamedTuple):
    """A bug."""

    sow: Callable[[], None]
    names: str
    """Violations it may show as."""
    quorum: bool = False
    """Whether controllers alone show it."""


def _replace(where: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(where, name, make(getattr(where, name)))


def commit_what_the_leader_has() -> None:
    """The high watermark is the leader's own end."""
    _replace(Leading, "high_watermark", lambda _: lambda self, own_end, *rest: own_end)


def let_anybody_join() -> None:
    """A follower joins the in-sync set whatever it has."""

    def expand(self: Leading, broker: int, high_watermark: int, eligible: Any) -> Any:
        if not isinstance(self.isr, Committed) or broker not in self.followers or broker in self.isr.isr:
            return None
        self.isr = PendingExpand(self.isr, broker)
        return self._change(self.isr.wanted)

    Leading.expand = expand  # type: ignore[method-assign]


def forget_who_is_leaving() -> None:
    """While a shrink is under way only those who stay count."""
    PendingShrink.maximal = property(lambda self: self.wanted)  # type: ignore[assignment,method-assign]


def commit_with_too_few() -> None:
    """Neither acknowledgement nor high watermark looks at how many are in sync."""
    Leading.is_under_min_isr = lambda *_: False  # type: ignore[method-assign]
    Leading.has_enough_for = lambda *_: True  # type: ignore[method-assign]


def believe_a_follower_about_nothing() -> None:
    """A follower never cuts its log."""
    fetcher.Fetcher._cut = lambda *_: None  # type: ignore[method-assign]


def cut_one_batch_too_few() -> None:
    """A log that diverged is cut behind where it parts."""
    _replace(
        following,
        "where_to_cut",
        lambda real: lambda epoch, end, own, log_end: real(epoch, end, own, log_end)._replace(offset=log_end),
    )
    fetcher.where_to_cut = following.where_to_cut  # type: ignore[attr-defined]


def cut_to_the_high_watermark() -> None:
    """A follower cuts to its own high watermark when the leader changes (before KIP-101)."""

    def make(real: Any) -> Any:
        def follow(self: fetcher.Fetcher, replica: Replica, leader_epoch: int) -> None:
            if replica.log.log_end_offset > replica.log.high_watermark:
                replica.log.truncate_to(replica.log.high_watermark, 0)
            real(self, replica, leader_epoch)

        return follow

    _replace(fetcher.Fetcher, "follow", make)


def lead_uncleanly() -> None:
    """Any replica that lives may lead rather than nobody."""
    _replace(leadership, "rules_of", lambda real: lambda *rest: _unclean(real(*rest)))


def _unclean(rules: Any) -> Any:
    from dataclasses import replace

    return replace(rules, unclean=True)


def forget_producers_of_followers() -> None:
    """A follower remembers no producer, and a new leader knows none."""

    def make(real: Any) -> Any:
        def append(self: PartitionLog, *rest: Any) -> Any:
            out = real(self, *rest)
            self.producers = ProducerStates()
            return out

        return append

    _replace(PartitionLog, "append_as_follower", make)


def forget_producers() -> None:
    """Nothing is known of producers after a start."""
    recovery.rebuild_producers = lambda *_: None


def vote_before_the_sync() -> None:
    """A vote is answered before it is on disk; it never gets there."""
    _replace(
        MetadataStore,
        "begin_state",
        lambda real: lambda self, hard, voters: (real(self, hard, voters), lambda: None)[1],
    )


def count_what_is_not_synced() -> None:
    """A voter says that it has what it has not synced."""

    def sync(self: Raft) -> None:
        end = self._store.log.log_end_offset
        if end > self.machine.synced:
            self.hand_in(events.Synced(end))

    Raft._sync = sync  # type: ignore[method-assign]


def vote_for_the_shorter_log() -> None:
    """Who asks for a vote is not asked how much it has."""

    def make(real: Any) -> Any:
        return lambda state, hard, vote, last_epoch, end: real(state, hard, vote, -1, -1)

    _replace(answers, "grants", make)


def vote_twice() -> None:
    """A vote that was given is forgotten at once."""
    votes._real = lambda hard, candidate, *, up_to_date: up_to_date


def raft_commits_alone() -> None:
    """What the leader has counts as committed."""
    _replace(RaftNode, "raise_high_watermark", lambda real: lambda self, _: real(self, self.chain.end))


PLANTS = {
    "commit-what-the-leader-has": Plant(commit_what_the_leader_has, LOST),
    "let-anybody-join": Plant(let_anybody_join, LOST),
    "forget-who-is-leaving": Plant(forget_who_is_leaving, LOST),
    "commit-with-too-few": Plant(commit_with_too_few, LOST),
    "never-cut": Plant(believe_a_follower_about_nothing, LOST),
    "cut-too-few": Plant(cut_one_batch_too_few, LOST),
    "cut-to-high-watermark": Plant(cut_to_the_high_watermark, LOST),
    "lead-uncleanly": Plant(lead_uncleanly, LOST),
    "forget-producers-of-followers": Plant(forget_producers_of_followers, LOST),
    "forget-producers": Plant(forget_producers, LOST),
    "vote-before-sync": Plant(vote_before_the_sync, QUORUM, quorum=True),
    "vote-for-the-shorter-log": Plant(vote_for_the_shorter_log, QUORUM, quorum=True),
    "vote-twice": Plant(vote_twice, QUORUM, quorum=True),
    "count-unsynced": Plant(count_what_is_not_synced, QUORUM, quorum=True),
    "raft-commits-alone": Plant(raft_commits_alone, QUORUM, quorum=True),
}

CI = ("commit-what-the-leader-has", "vote-twice")
"""Looked for at every run of the tests; the others where ``OTTLA_PLANTS`` is set."""


def main(name: str) -> int:
    """Look for one bug."""
    import logging

    from sim.cluster import simulate_cluster
    from sim.quorum import simulate_quorum

    logging.disable(logging.CRITICAL)
    plant = PLANTS[name]
    plant.sow()
    for seed in range(1, SEEDS + 1):
        try:
            result = (simulate_quorum if plant.quorum else simulate_cluster)(seed, 3, RUN_S)
        except BaseExceptionGroup as error:
            print(f"seed {seed}: {error!r}"[:500])
            return 0
        found = [(kind, text) for kind, text in result.violations if kind in plant.names.split()]
        if found:
            print(f"seed {seed}: {found[0]}")
            return 0
        print(f"seed {seed} ok {result.violations[:1]}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
