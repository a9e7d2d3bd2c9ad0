"""Simulated runs from the first event to the result."""
