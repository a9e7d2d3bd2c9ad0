"""Hosted partitions: leaders, followers, in-sync replicas; creation, maintenance and moves of their logs."""
