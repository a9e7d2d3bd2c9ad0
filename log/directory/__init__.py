"""A log directory: its identity, lock and checkpoints, the partitions and future logs in it."""
