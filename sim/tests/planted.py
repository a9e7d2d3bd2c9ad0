"""Bugs that are planted to see whether they are found: each breaks one rule of one room by replacing one thing.

``python -m sim.tests.planted NAME``: break it, and run seeds until a promise is broken. Status 0: found, by a violation
of one of the names it may have; 1: not within its seeds; 2: nor was it ever reached.
"""

from __future__ import annotations

import sys

from sim.tests import bugs_node as bugs
from sim.tests.sowing import FOUND, NOT_FOUND, Plant, look_for

SEEDS = 40
LOST = "lost out-of-order hole stuck no-start bad-crc duplicate disorder unmade undead bad-response"
PLANTS: dict[str, Plant] = {
    "acknowledge without writing": Plant(bugs.acknowledge_without_writing, "lost out-of-order"),
    "forget producers": Plant(bugs.forget_producers, "duplicate out-of-order"),
    "skip the duplicate check": Plant(bugs.skip_the_duplicate_check, "duplicate"),
    "believe files after a crash": Plant(bugs.believe_files_after_a_crash, LOST),
    "sync nothing": Plant(bugs.sync_nothing, LOST),
    "forget names of a roll during a sync": Plant(bugs.forget_names_of_a_roll_during_a_sync, LOST, synced=True),
    "leave what recovery cuts": Plant(bugs.leave_what_recovery_cuts, LOST),
    "sync only the newest segment": Plant(bugs.sync_only_the_newest_segment, LOST, synced=True),
    "believe a predecessor's checkpoints": Plant(
        bugs.believe_a_predecessors_checkpoints, LOST, test="log/tests/test_directory.py"
    ),
    "compact the newest away": Plant(bugs.compact_the_newest_away, "lost"),
    "leave compacted segments unsynced": Plant(bugs.leave_compacted_segments_unsynced, LOST),
    "answer before metadata is synced": Plant(bugs.answer_before_metadata_is_synced, LOST),
    "answer a setting without writing it": Plant(bugs.answer_a_setting_without_writing_it, "unmade"),
    "keep deleted topics": Plant(bugs.keep_deleted_topics, "undead"),
    "widen nothing": Plant(bugs.widen_nothing, "unmade stuck"),
    "read metadata but the last": Plant(bugs.read_metadata_but_the_last, LOST),
    "forget committed positions": Plant(bugs.forget_committed_positions, "offset-back"),
    "serve a wrong byte": Plant(bugs.serve_a_wrong_byte, LOST),
    "read one too far": Plant(bugs.read_one_too_far, LOST),
    "leave a deleted topic's files": Plant(bugs.leave_a_deleted_topics_files, f"{LOST} ghost"),
    "cut one record too many": Plant(bugs.cut_one_record_too_many, "lost"),
    "give producer ids twice": Plant(bugs.give_producer_ids_twice, LOST),
    "look at no checksum": Plant(bugs.look_at_no_checksum, f"{LOST} ghost", test="log/tests/test_recovery.py"),
    "mark a clean stop too early": Plant(bugs.mark_a_clean_stop_too_early, LOST, test="log/tests/test_directory.py"),
    "believe indexes after a crash": Plant(bugs.believe_indexes_after_a_crash, LOST),
    "answer before the sync": Plant(bugs.answer_before_the_sync, LOST, synced=True),
    "delete records of a neighbour": Plant(bugs.delete_records_of_a_neighbour, "lost stuck"),
    "cut off the first batch": Plant(bugs.cut_off_the_first_batch, "bad-response"),
    "ignore the limit of a partition": Plant(bugs.ignore_the_limit_of_a_partition, "bad-response"),
    "answer a partition twice": Plant(bugs.answer_a_partition_twice, "bad-response"),
}
CI = (
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
"""Found at once, and one of each room."""


def main(name: str) -> int:
    """Plant one, and look for it."""
    import logging

    import pytest

    from sim.scenario import simulate

    logging.disable(logging.CRITICAL)
    plant = PLANTS[name]
    plant.sow()
    if plant.test:
        ended = pytest.main([plant.test, "-q", "-x", "--assert=plain", "-p", "no:cacheprovider"])
        return FOUND if ended == pytest.ExitCode.TESTS_FAILED else NOT_FOUND
    return look_for(plant, lambda seed: simulate(seed, synced=plant.synced), SEEDS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
