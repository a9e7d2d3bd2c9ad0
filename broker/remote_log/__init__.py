"""Tiered storage of the partitions of a broker (KIP-405): manager, tasks of leaders, and the metadata topic."""
