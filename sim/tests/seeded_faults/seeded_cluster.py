"""Bugs planted in the rules between several nodes, to test the simulator: as `seeded_node`.

``python -m sim.tests.seeded_faults.seeded_cluster NAME``: plant it, and run seeds until a violation. Status 0: found,
by a violation of one of its expected names or by its test, or known as one of `RARE_FAULTS`; 1: not found; 2: never
reached.
"""

from __future__ import annotations

import sys
from typing import Any

from sim.scenarios.cluster import simulate_cluster
from sim.scenarios.quorum import simulate_quorum
from sim.tests.seeded_faults import controller_faults as control
from sim.tests.seeded_faults import node_faults as node
from sim.tests.seeded_faults import quorum_faults as quorum
from sim.tests.seeded_faults import replica_faults as replicas
from sim.tests.seeded_faults import transaction_faults as txn
from sim.tests.seeded_faults.seeding import FOUND, NOT_FOUND, SeededFault, run_test, run_until_detected

SEEDS = 100
RUN_S = 20.0
LOSS_VIOLATIONS = (
    "lost unseen lost-write inconsistent-offsets StrongIsr EnoughInSync copies-differ out-of-order duplicate "
    "hole disorder ghost offset-back nonmonotonic-send nonmonotonic-poll isr-not-full stuck MonotonicHighWatermark "
    "bad-response"
)
CONTROL = f"{LOSS_VIOLATIONS} CommittedNeverLost PartitionLeaderPerEpoch LeaderInIsr no-failover unmade undead no-start"
GROUPS = "offset-back OneOwnerPerPartitionPerGeneration ghost EpochsInOrder StaleMemberCommit"
QUORUM = "SingleLeaderPerEpoch CommittedNeverLost MonotonicHighWatermark copies-differ lost no-start behind"
TXN = "G1a precommitted-read torn-txn lso-stuck txn-refused unseen lost-write duplicate stuck no-start " + (
    "copy-twice copy-lost copy-ghost copy-disorder inconsistent-offsets poll-skip nonmonotonic-poll nonmonotonic-send "
    "undecided-read bad-response"
)

SEEDED_FAULTS = {
    "commit-what-the-leader-has": SeededFault(replicas.commit_at_leader_end, LOSS_VIOLATIONS),
    "let-anybody-join": SeededFault(replicas.skip_isr_catch_up_check, LOSS_VIOLATIONS),
    "count-only-remaining-replicas": SeededFault(replicas.count_only_remaining_replicas, LOSS_VIOLATIONS),
    "commit-with-too-few": SeededFault(replicas.commit_with_too_few, LOSS_VIOLATIONS),
    "never-cut": SeededFault(replicas.skip_follower_truncation, LOSS_VIOLATIONS),
    "cut-too-few": SeededFault(replicas.truncate_too_little, LOSS_VIOLATIONS),
    "cut-to-high-watermark": SeededFault(replicas.cut_to_the_high_watermark, LOSS_VIOLATIONS),
    "lead-uncleanly": SeededFault(replicas.elect_unclean_leader, LOSS_VIOLATIONS),
    "forget-producers-of-followers": SeededFault(replicas.forget_producers_of_followers, LOSS_VIOLATIONS),
    "forget-producers": SeededFault(replicas.forget_producers, LOSS_VIOLATIONS),
    "acknowledge-at-the-append": SeededFault(replicas.acknowledge_at_the_append, LOSS_VIOLATIONS),
    "serve-uncommitted": SeededFault(replicas.serve_uncommitted_records, LOSS_VIOLATIONS),
    "believe-in-the-in-sync-set": SeededFault(replicas.trust_isr_at_election, LOSS_VIOLATIONS),
    "never-expand": SeededFault(replicas.never_expand, LOSS_VIOLATIONS),
    "join-before-the-epoch-began": SeededFault(replicas.join_before_the_epoch_began, LOSS_VIOLATIONS),
    "keep-epochs-that-were-cut": SeededFault(replicas.keep_epochs_that_were_cut, LOSS_VIOLATIONS),
    "remember-producers-that-were-cut": SeededFault(replicas.remember_producers_that_were_cut, LOSS_VIOLATIONS),
    "commit-all-records-of-a-follower": SeededFault(replicas.commit_all_records_of_a_follower, LOSS_VIOLATIONS),
    "stamp-the-epoch-before": SeededFault(replicas.write_previous_leader_epoch, LOSS_VIOLATIONS),
    "go-on-leading": SeededFault(replicas.ignore_leader_change, f"{LOSS_VIOLATIONS} PartitionLeaderPerEpoch"),
    "leave-a-replaced-disk-empty": SeededFault(replicas.leave_a_replaced_disk_empty, LOSS_VIOLATIONS),
    "keep-who-registers-in-sync": SeededFault(control.keep_registering_broker_in_isr, CONTROL),
    "elect-the-dead": SeededFault(control.elect_dead_broker, CONTROL),
    "fence-nobody": SeededFault(control.never_fence, CONTROL),
    "fence-without-electing": SeededFault(control.fence_without_electing, CONTROL),
    "keep-the-leader-epoch": SeededFault(control.keep_the_leader_epoch, CONTROL),
    "answer-before-the-commit": SeededFault(control.publish_before_commit, CONTROL),
    "keep-what-never-was": SeededFault(control.keep_uncommitted_records, CONTROL),
    "take-in-uncommitted": SeededFault(control.replay_uncommitted_records, CONTROL),
    "hear-old-leaders": SeededFault(control.accept_stale_alter_partition, CONTROL),
    "give-producer-ids-twice": SeededFault(control.reuse_producer_ids, CONTROL),
    "coordinate-without-reading": SeededFault(control.skip_loading_coordinator, GROUPS),
    "answer-uncommitted": SeededFault(control.respond_before_commit, GROUPS),
    "keep-the-shard": SeededFault(control.keep_stale_shard, GROUPS, groups=True),
    "let-anybody-commit": SeededFault(control.skip_member_check_on_commit, GROUPS),
    "vote-before-sync": SeededFault(quorum.vote_before_fsync, QUORUM, quorum=True),
    "vote-for-the-shorter-log": SeededFault(quorum.vote_for_shorter_log, QUORUM, quorum=True),
    "vote-twice": SeededFault(quorum.vote_twice, QUORUM, quorum=True),
    "count-unsynced": SeededFault(quorum.count_unflushed_records, QUORUM, quorum=True),
    "raft-commits-alone": SeededFault(quorum.commit_without_majority, QUORUM, quorum=True),
    "take-half-for-a-majority": SeededFault(quorum.accept_half_as_majority, QUORUM, quorum=True),
    "forget-votes": SeededFault(
        quorum.forget_votes_at_a_start, QUORUM, test="controller/raft/store/tests/test_quorum_state_file.py"
    ),
    "read-no-quorum-state": SeededFault(quorum.read_no_quorum_state, QUORUM, quorum=True),
    "believe-every-log": SeededFault(quorum.skip_divergence_check, QUORUM, quorum=True),
    "commit-older-epochs": SeededFault(quorum.commit_older_epochs, QUORUM, quorum=True),
    "count-wishes-as-votes": SeededFault(quorum.count_pre_votes_as_votes, QUORUM, quorum=True),
    "believe-the-id-alone": SeededFault(quorum.ignore_directory_id, QUORUM, quorum=True),
    "let-newborns-vote": SeededFault(quorum.vote_with_empty_log, QUORUM, quorum=True),
    "change-voters-at-once": SeededFault(quorum.change_voters_concurrently, QUORUM, quorum=True),
    "leave-the-last-out-of-snapshots": SeededFault(quorum.leave_the_last_out_of_snapshots, QUORUM, quorum=True),
}
SEEDED_FAULTS |= {
    name: SeededFault(sow, TXN, transactions=2, uses_delays=name in ("bump-no-epoch", "end-whatever-epoch"))
    for name, sow in {
        "decide-at-the-append": txn.send_markers_before_commit,
        "show-what-is-open": txn.ignore_open_transactions,
        "bump-no-epoch": txn.skip_epoch_bump,
        "verify-nothing": txn.skip_verification,
        "refuse-what-is-asked-twice": txn.reject_repeated_end_txn,
        "tell-nobody-what-was-aborted": txn.omit_aborted_transactions,
        "commit-what-is-to-be-aborted": txn.write_commit_markers_for_aborts,
        "tell-all-but-one": txn.drop_single_marker,
        "tell-the-first": txn.complete_after_first_marker,
        "forget-decided-transactions": txn.forget_decided_transactions,
        "never-time-out": txn.skip_transaction_timeout,
        "fence-nobody-who-had-the-id": txn.skip_fencing,
        "forget-open-transactions": txn.forget_open_transactions,
        "append-a-batch-twice": txn.append_a_batch_twice,
        "coordinate-transactions-unread": txn.skip_loading_coordinator,
        "end-whatever-epoch": txn.skip_epoch_check_on_end,
        "answer-before-it-is-decided": txn.respond_before_commit_decision,
        "show-pending-positions": txn.expose_pending_offsets,
        "lose-positions-at-the-commit": txn.drop_offsets_at_commit,
        "keep-positions-that-were-aborted": txn.keep_aborted_offsets,
        "read-what-is-not-decided": txn.read_unstable_offsets,
        "return-records-above-the-last-stable-offset": node.return_records_above_the_last_stable_offset,
    }.items()
}

CI_FAULTS = ("commit-what-the-leader-has", "vote-twice")
"""Planted in every run of the tests; the others with ``OTTLA_PLANTS``."""


RARE_FAULTS = {"join-before-the-epoch-began": "who joins fetches on, and has the rest before anybody needs it"}
"""Faults not found within these seeds, with the reason; they must only be reached."""


def main(name: str) -> int:
    """Plant one fault and run seeds."""
    import logging

    logging.disable(logging.CRITICAL)
    plant = SEEDED_FAULTS[name]
    plant.apply()
    if plant.test:
        return run_test(plant.test)

    def run(seed: int) -> Any:
        if plant.quorum:
            return simulate_quorum(seed, 3, RUN_S)
        how = {"only_late": plant.uses_delays, "groups": plant.groups}
        return simulate_cluster(seed, 3, RUN_S, None, plant.transactions, **how)

    status = run_until_detected(plant, run, SEEDS)
    return FOUND if status == NOT_FOUND and name in RARE_FAULTS else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
