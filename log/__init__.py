"""Batches on disk: segments, indexes, recovery, producer state, epochs; the `Disk` interface; the machine contract."""
