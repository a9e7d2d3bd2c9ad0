"""Hosted partitions: leaders, followers, in-sync replicas and the creation of their logs."""
