"""Checkpoint files of a log directory and of its partitions."""
