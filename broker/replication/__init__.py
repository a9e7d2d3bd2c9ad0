"""Hosted partitions and the directories they lie in."""
