"""Hosted partitions: leaders, followers, fetchers, in-sync replicas; creation, maintenance, moves of their logs."""
