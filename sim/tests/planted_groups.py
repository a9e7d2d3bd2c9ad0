"""Bugs planted in the groups of Kafka 4, to see whether the simulator finds them: as `sim.tests.planted`.

``python -m sim.tests.planted_groups NAME``: break it, and run seeds until a promise is broken. Status 0: found, by a
violation of one of the names it may have; 1: not within its seeds; 2: nor was it ever reached.
"""

from __future__ import annotations

import sys

from sim.tests import bugs_groups as bugs
from sim.tests.sowing import Plant, look_for

SEEDS = 40
OWNERS = "NoAssignmentBeforeRevocation OneOwnerPerPartitionPerEpoch offset-back OneHolder CommitOfNobody"
REST = "group-unstable group-refused stuck"
LOCKS = "LockedToOne HolderIsHeard"
RECORDS = "share-lost share-overdelivered ArchivedOnlyAfterLimitOrAccept AcceptedIsFinal group-unstable " + (
    "group-refused ShareBookIsRight"
)

PLANTS = {
    "wait-for-no-revocation": Plant(bugs.wait_for_no_revocation, OWNERS),
    "look-at-no-owner": Plant(bugs.look_at_no_owner, OWNERS),
    "free-nothing": Plant(bugs.free_nothing, REST),
    "expire-no-member": Plant(bugs.expire_no_member, REST),
    "forget-sessions-at-a-start": Plant(bugs.forget_sessions_at_a_start, REST),
    "wait-for-whoever-is-slow": Plant(bugs.wait_for_whoever_is_slow, REST),
    "let-anybody-commit": Plant(bugs.let_anybody_commit, OWNERS),
    "resolve-no-regex": Plant(bugs.resolve_no_regex, REST),
    "expire-no-lock": Plant(bugs.expire_no_lock, REST),
    "end-every-lock": Plant(bugs.end_every_lock, LOCKS),
    "lend-what-is-lent": Plant(bugs.lend_what_is_lent, LOCKS),
    "give-up-early": Plant(bugs.give_up_early, RECORDS),
    "count-what-is-out-as-done": Plant(bugs.count_what_is_out_as_done, RECORDS),
    "write-no-verdict": Plant(bugs.write_no_verdict, RECORDS),
    "read-no-verdicts": Plant(bugs.read_no_verdicts, RECORDS),
    "take-anybodys-word": Plant(bugs.take_anybodys_word, f"{RECORDS} {LOCKS}"),
    "hear-some-only": Plant(bugs.hear_some_only, LOCKS),
    "give-up-what-comes-back": Plant(bugs.give_up_what_comes_back, RECORDS),
    "wait-for-no-task": Plant(bugs.wait_for_no_task, OWNERS),
    "note-no-doer": Plant(bugs.note_no_doer, OWNERS),
    "do-in-several-roles": Plant(bugs.do_in_several_roles, OWNERS),
    "free-no-task": Plant(bugs.free_no_task, REST),
    "expire-no-thread": Plant(bugs.expire_no_thread, REST),
}
CI = ("lend-what-is-lent",)
"""Looked for at every run of the tests: the first seed shows it; the others where ``OTTLA_PLANTS`` is set."""


def main(name: str) -> int:
    """Look for one bug."""
    import logging

    from sim.scenario import simulate

    logging.disable(logging.CRITICAL)
    plant = PLANTS[name]
    plant.sow()
    return look_for(plant, lambda seed: simulate(seed, groups=True), SEEDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
