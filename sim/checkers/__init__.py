"""Checkers of simulated runs: properties of histories, logs, groups and clusters that must never be violated."""
