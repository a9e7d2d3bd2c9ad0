"""Bugs planted in the groups of Kafka 4, to test the simulator: as `seeded_node`.

``python -m sim.tests.seeded_faults.seeded_groups NAME``: plant it, and run seeds until a violation. Status 0: found, by
a violation of one of its expected names; 1: not within its seeds; 2: never reached.
"""

from __future__ import annotations

import sys

from sim.scenarios.single_node import simulate_node
from sim.tests.seeded_faults import group_faults as bugs
from sim.tests.seeded_faults.seeding import SeededFault, run_until_detected

SEEDS = 40
OWNERS = "NoAssignmentBeforeRevocation OneOwnerPerPartitionPerEpoch offset-back OneHolder StaleMemberCommit"
REST = "group-unstable group-refused stuck"
LOCKS = "LockedToOne HolderIsHeard"
RECORDS = "share-lost share-overdelivered ArchivedOnlyAfterLimitOrAccept AcceptedIsFinal group-unstable " + (
    "group-refused ShareBookIsRight"
)

SEEDED_FAULTS = {
    "wait-for-no-revocation": SeededFault(bugs.skip_waiting_for_revocation, OWNERS),
    "look-at-no-owner": SeededFault(bugs.ignore_current_owners, OWNERS),
    "free-nothing": SeededFault(bugs.never_release_partitions, REST),
    "expire-no-member": SeededFault(bugs.never_expire_members, REST),
    "forget-sessions-at-a-start": SeededFault(bugs.forget_sessions_at_a_start, REST),
    "wait-for-whoever-is-slow": SeededFault(bugs.ignore_rebalance_timeout, REST),
    "let-anybody-commit": SeededFault(bugs.skip_member_check_on_commit, OWNERS),
    "resolve-no-regex": SeededFault(bugs.never_resolve_regex, REST),
    "expire-no-lock": SeededFault(bugs.never_expire_locks, REST),
    "end-every-lock": SeededFault(bugs.expire_all_locks, LOCKS),
    "lend-what-is-lent": SeededFault(bugs.acquire_acquired_records, LOCKS),
    "give-up-early": SeededFault(bugs.archive_before_last_delivery, RECORDS),
    "count-what-is-out-as-done": SeededFault(bugs.advance_over_acquired_records, RECORDS),
    "write-no-verdict": SeededFault(bugs.skip_writing_acknowledgements, RECORDS),
    "read-no-verdicts": SeededFault(bugs.skip_reading_share_state, RECORDS),
    "take-anybodys-word": SeededFault(bugs.accept_foreign_acknowledgements, f"{RECORDS} {LOCKS}"),
    "hear-some-only": SeededFault(bugs.reject_some_acknowledgements, LOCKS),
    "give-up-what-comes-back": SeededFault(bugs.archive_released_records, RECORDS),
    "wait-for-no-task": SeededFault(bugs.skip_waiting_for_task_revocation, OWNERS),
    "note-no-doer": SeededFault(bugs.forget_task_owner, OWNERS),
    "do-in-several-roles": SeededFault(bugs.allow_task_in_two_roles, OWNERS),
    "free-no-task": SeededFault(bugs.never_release_tasks, REST),
    "expire-no-thread": SeededFault(bugs.never_expire_streams_members, REST),
}
CI_FAULTS = ("lend-what-is-lent",)
"""Planted in every run of the tests, since the first seed finds it; the others with ``OTTLA_PLANTS``."""


def main(name: str) -> int:
    """Plant one fault and run seeds."""
    import logging

    logging.disable(logging.CRITICAL)
    plant = SEEDED_FAULTS[name]
    plant.apply()
    return run_until_detected(plant, lambda seed: simulate_node(seed, groups=True), SEEDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
