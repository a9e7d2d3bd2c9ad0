"""Scenarios: complete simulated runs with faults, workload and verification."""
