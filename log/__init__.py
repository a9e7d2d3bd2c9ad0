"""Log of a partition on disk: segments, indexes, recovery, compaction, retention, producer state and leader epochs."""
