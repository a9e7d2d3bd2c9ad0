"""Bugs planted in the rules between several nodes, to see whether the simulator finds them: as `sim.tests.planted`.

``python -m sim.tests.planted_cluster NAME``: break it, and run seeds until a promise is broken. Status 0: found, by a
violation of one of the names it may have, or known to be `RARE`; 1: not within its seeds; 2: nor was it ever reached.
"""

from __future__ import annotations

import sys
from typing import Any

from sim.tests import bugs_control as control
from sim.tests import bugs_node as node
from sim.tests import bugs_quorum as quorum
from sim.tests import bugs_replicas as replicas
from sim.tests import bugs_transactions as txn
from sim.tests.sowing import FOUND, NOT_FOUND, Plant, look_for

SEEDS = 100
RUN_S = 20.0
LOST = (
    "lost unseen lost-write inconsistent-offsets StrongIsr EnoughInSync copies-differ out-of-order duplicate "
    "hole disorder ghost offset-back nonmonotonic-send nonmonotonic-poll isr-not-full stuck MonotonicHighWatermark "
    "bad-response"
)
CONTROL = f"{LOST} CommittedNeverLost PartitionLeaderPerEpoch LeaderInIsr no-failover unmade undead no-start"
GROUPS = "offset-back OneOwnerPerPartitionPerGeneration ghost EpochsInOrder CommitOfNobody"
QUORUM = "SingleLeaderPerEpoch CommittedNeverLost MonotonicHighWatermark copies-differ lost no-start behind"
TXN = "G1a precommitted-read torn-txn lso-stuck txn-refused unseen lost-write duplicate stuck no-start " + (
    "copy-twice copy-lost copy-ghost copy-disorder inconsistent-offsets poll-skip nonmonotonic-poll nonmonotonic-send "
    "undecided-read bad-response"
)

PLANTS = {
    "commit-what-the-leader-has": Plant(replicas.commit_what_the_leader_has, LOST),
    "let-anybody-join": Plant(replicas.let_anybody_join, LOST),
    "forget-who-is-leaving": Plant(replicas.forget_who_is_leaving, LOST),
    "commit-with-too-few": Plant(replicas.commit_with_too_few, LOST),
    "never-cut": Plant(replicas.believe_a_follower_about_nothing, LOST),
    "cut-too-few": Plant(replicas.cut_one_batch_too_few, LOST),
    "cut-to-high-watermark": Plant(replicas.cut_to_the_high_watermark, LOST),
    "lead-uncleanly": Plant(replicas.lead_uncleanly, LOST),
    "forget-producers-of-followers": Plant(replicas.forget_producers_of_followers, LOST),
    "forget-producers": Plant(replicas.forget_producers, LOST),
    "acknowledge-at-the-append": Plant(replicas.acknowledge_at_the_append, LOST),
    "serve-uncommitted": Plant(replicas.serve_what_is_not_committed, LOST),
    "believe-in-the-in-sync-set": Plant(replicas.believe_in_the_in_sync_set, LOST),
    "never-expand": Plant(replicas.never_expand, LOST),
    "join-before-the-epoch-began": Plant(replicas.join_before_the_epoch_began, LOST),
    "keep-epochs-that-were-cut": Plant(replicas.keep_epochs_that_were_cut, LOST),
    "remember-producers-that-were-cut": Plant(replicas.remember_producers_that_were_cut, LOST),
    "commit-what-a-follower-has": Plant(replicas.commit_what_a_follower_has, LOST),
    "stamp-the-epoch-before": Plant(replicas.stamp_the_epoch_before, LOST),
    "go-on-leading": Plant(replicas.go_on_leading, f"{LOST} PartitionLeaderPerEpoch"),
    "leave-a-replaced-disk-empty": Plant(replicas.leave_a_replaced_disk_empty, LOST),
    "keep-who-registers-in-sync": Plant(control.keep_who_registers_in_sync, CONTROL),
    "elect-the-dead": Plant(control.elect_the_dead, CONTROL),
    "fence-nobody": Plant(control.fence_nobody, CONTROL),
    "fence-without-electing": Plant(control.fence_without_electing, CONTROL),
    "keep-the-leader-epoch": Plant(control.keep_the_leader_epoch, CONTROL),
    "answer-before-the-commit": Plant(control.answer_before_the_commit, CONTROL),
    "keep-what-never-was": Plant(control.keep_what_never_was, CONTROL),
    "take-in-uncommitted": Plant(control.take_in_what_is_not_committed, CONTROL),
    "hear-old-leaders": Plant(control.hear_old_leaders, CONTROL),
    "give-producer-ids-twice": Plant(control.give_producer_ids_twice, CONTROL),
    "coordinate-without-reading": Plant(control.coordinate_without_reading, GROUPS),
    "answer-uncommitted": Plant(control.answer_for_what_is_not_committed, GROUPS),
    "keep-the-shard": Plant(control.keep_the_shard, GROUPS, groups=True),
    "let-anybody-commit": Plant(control.let_anybody_commit, GROUPS),
    "vote-before-sync": Plant(quorum.vote_before_the_sync, QUORUM, quorum=True),
    "vote-for-the-shorter-log": Plant(quorum.vote_for_the_shorter_log, QUORUM, quorum=True),
    "vote-twice": Plant(quorum.vote_twice, QUORUM, quorum=True),
    "count-unsynced": Plant(quorum.count_what_is_not_synced, QUORUM, quorum=True),
    "raft-commits-alone": Plant(quorum.raft_commits_alone, QUORUM, quorum=True),
    "take-half-for-a-majority": Plant(quorum.take_half_for_a_majority, QUORUM, quorum=True),
    "forget-votes": Plant(quorum.forget_votes_at_a_start, QUORUM, quorum=True),
    "read-no-quorum-state": Plant(quorum.read_no_quorum_state, QUORUM, quorum=True),
    "believe-every-log": Plant(quorum.believe_every_log, QUORUM, quorum=True),
    "commit-older-epochs": Plant(quorum.commit_older_epochs, QUORUM, quorum=True),
    "count-wishes-as-votes": Plant(quorum.count_wishes_as_votes, QUORUM, quorum=True),
    "believe-the-id-alone": Plant(quorum.believe_the_id_alone, QUORUM, quorum=True),
    "let-newborns-vote": Plant(quorum.let_newborns_vote, QUORUM, quorum=True),
    "change-voters-at-once": Plant(quorum.change_voters_at_once, QUORUM, quorum=True),
    "leave-the-last-out-of-snapshots": Plant(quorum.leave_the_last_out_of_snapshots, QUORUM, quorum=True),
}
PLANTS |= {
    name: Plant(sow, TXN, transactions=2, late=name in ("bump-no-epoch", "end-whatever-epoch"))
    for name, sow in {
        "decide-at-the-append": txn.decide_at_the_append,
        "show-what-is-open": txn.show_what_is_open,
        "bump-no-epoch": txn.bump_no_epoch,
        "verify-nothing": txn.verify_nothing,
        "refuse-what-is-asked-twice": txn.refuse_what_is_asked_twice,
        "tell-nobody-what-was-aborted": txn.tell_nobody_what_was_aborted,
        "commit-what-is-to-be-aborted": txn.commit_what_is_to_be_aborted,
        "tell-all-but-one": txn.tell_all_but_one,
        "tell-the-first": txn.tell_the_first,
        "forget-what-was-decided": txn.forget_what_was_decided,
        "never-time-out": txn.never_time_out,
        "fence-nobody-who-had-the-id": txn.fence_nobody_who_had_the_id,
        "forget-open-transactions": txn.forget_open_transactions,
        "append-a-batch-twice": txn.append_a_batch_twice,
        "coordinate-transactions-unread": txn.coordinate_without_reading,
        "end-whatever-epoch": txn.end_whatever_epoch_is_named,
        "answer-before-it-is-decided": txn.answer_before_it_is_decided,
        "show-pending-positions": txn.show_pending_positions,
        "lose-positions-at-the-commit": txn.lose_positions_at_the_commit,
        "keep-positions-that-were-aborted": txn.keep_positions_that_were_aborted,
        "read-what-is-not-decided": txn.read_what_is_not_decided,
        "return-records-above-the-last-stable-offset": node.return_records_above_the_last_stable_offset,
    }.items()
}

CI = ("commit-what-the-leader-has", "vote-twice")
"""Looked for at every run of the tests; the others where ``OTTLA_PLANTS`` is set."""


RARE = {"join-before-the-epoch-began": "who joins fetches on, and has the rest before anybody needs it"}
"""Not found within these seeds, and why; that they are reached is all that is asked of them."""


def main(name: str) -> int:
    """Look for one bug."""
    import logging

    from sim.cluster import simulate_cluster
    from sim.quorum import simulate_quorum

    logging.disable(logging.CRITICAL)
    plant = PLANTS[name]
    plant.sow()

    def run(seed: int) -> Any:
        if plant.quorum:
            return simulate_quorum(seed, 3, RUN_S)
        how = {"only_late": plant.late, "groups": plant.groups}
        return simulate_cluster(seed, 3, RUN_S, None, plant.transactions, **how)

    status = look_for(plant, run, SEEDS)
    return FOUND if status == NOT_FOUND and name in RARE else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
