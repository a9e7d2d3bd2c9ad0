"""Simulated clients and their workload."""
