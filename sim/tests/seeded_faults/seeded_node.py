"""Bugs planted in a single node, to test the simulator: each breaks one rule by replacing one function.

``python -m sim.tests.seeded_faults.seeded_node NAME``: plant it, and run seeds until a violation. Status 0: found, by a
violation of one of its expected names; 1: not within its seeds; 2: never reached.
"""

from __future__ import annotations

import sys

from sim.scenarios.single_node import simulate_node
from sim.tests.seeded_faults import node_faults as bugs
from sim.tests.seeded_faults.seeding import SeededFault, run_test, run_until_detected

SEEDS = 40
LOSS_VIOLATIONS = "lost out-of-order hole stuck no-start bad-crc duplicate disorder unmade undead bad-response"
SEEDED_FAULTS: dict[str, SeededFault] = {
    "acknowledge without writing": SeededFault(bugs.acknowledge_without_writing, "lost out-of-order"),
    "forget producers": SeededFault(bugs.forget_producers, "duplicate out-of-order"),
    "skip the duplicate check": SeededFault(bugs.skip_the_duplicate_check, "duplicate"),
    "believe files after a crash": SeededFault(bugs.trust_files_after_crash, LOSS_VIOLATIONS),
    "sync nothing": SeededFault(bugs.skip_fsync, LOSS_VIOLATIONS),
    "forget names of a roll during a sync": SeededFault(
        bugs.forget_names_of_a_roll_during_a_sync, LOSS_VIOLATIONS, synced=True
    ),
    "leave what recovery cuts": SeededFault(bugs.skip_truncation_in_recovery, LOSS_VIOLATIONS),
    "sync only the newest segment": SeededFault(bugs.sync_only_the_newest_segment, LOSS_VIOLATIONS, synced=True),
    "believe a predecessor's checkpoints": SeededFault(
        bugs.reuse_checkpoints_of_deleted_topic, LOSS_VIOLATIONS, test="log/directory/tests/test_log_directory.py"
    ),
    "compact the newest away": SeededFault(bugs.compact_newest_record, "lost"),
    "leave compacted segments unsynced": SeededFault(bugs.leave_compacted_segments_unsynced, LOSS_VIOLATIONS),
    "answer before metadata is synced": SeededFault(bugs.skip_metadata_fsync, LOSS_VIOLATIONS),
    "answer a setting without writing it": SeededFault(bugs.acknowledge_unwritten_setting, "unmade"),
    "keep deleted topics": SeededFault(bugs.skip_topic_deletion, "undead"),
    "widen nothing": SeededFault(bugs.skip_partition_creation, "unmade stuck"),
    "read metadata but the last": SeededFault(bugs.read_metadata_but_the_last, LOSS_VIOLATIONS),
    "forget committed positions": SeededFault(bugs.forget_committed_positions, "offset-back"),
    "serve a wrong byte": SeededFault(bugs.corrupt_read_byte, LOSS_VIOLATIONS),
    "read one too far": SeededFault(bugs.fetch_from_next_offset, LOSS_VIOLATIONS),
    "leave a deleted topic's files": SeededFault(bugs.keep_files_of_deleted_topic, f"{LOSS_VIOLATIONS} ghost"),
    "cut one record too many": SeededFault(bugs.delete_first_kept_record, "lost"),
    "give producer ids twice": SeededFault(bugs.reuse_producer_ids, LOSS_VIOLATIONS),
    "look at no checksum": SeededFault(
        bugs.skip_checksum_in_recovery, f"{LOSS_VIOLATIONS} ghost", test="log/recovery/tests/test_unclean_shutdown.py"
    ),
    "mark a clean stop too early": SeededFault(
        bugs.write_clean_shutdown_file_early, LOSS_VIOLATIONS, test="log/directory/tests/test_log_directory.py"
    ),
    "believe indexes after a crash": SeededFault(bugs.trust_indexes_after_crash, LOSS_VIOLATIONS),
    "answer before the sync": SeededFault(bugs.acknowledge_before_fsync, LOSS_VIOLATIONS, synced=True),
    "delete records of a neighbour": SeededFault(bugs.delete_records_of_a_neighbour, "lost stuck"),
    "cut off the first batch": SeededFault(bugs.cut_off_the_first_batch, "bad-response"),
    "ignore the limit of a partition": SeededFault(bugs.ignore_the_limit_of_a_partition, "bad-response"),
    "answer a partition twice": SeededFault(bugs.answer_a_partition_twice, "bad-response"),
}
CI_FAULTS = (
    "forget names of a roll during a sync",
    "acknowledge without writing",
    "answer before metadata is synced",
    "forget producers",
    "compact the newest away",
    "forget committed positions",
    "keep deleted topics",
    "serve a wrong byte",
    "cut off the first batch",
)
"""Faults found at once, one of each package."""


def main(name: str) -> int:
    """Plant one fault, and run seeds or the fault's test; return the exit status.

    It is 0 also if the test fails, as it should, and 1 if it passes.
    """
    import logging

    logging.disable(logging.CRITICAL)
    plant = SEEDED_FAULTS[name]
    plant.apply()
    if plant.test:
        return run_test(plant.test)
    return run_until_detected(plant, lambda seed: simulate_node(seed, synced=plant.synced), SEEDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
