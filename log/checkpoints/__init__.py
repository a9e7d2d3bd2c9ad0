"""Checkpoint files of a log directory and of its partitions: offsets, leader epochs, topic ids, clean shutdown."""
