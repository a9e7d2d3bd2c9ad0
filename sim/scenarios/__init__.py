"""Runs of a simulated world from its first event to the verdict."""
