"""Partition logs and log directories on disk: segments, indexes, checkpoints, recovery, compaction, retention."""
