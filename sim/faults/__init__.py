"""Faults of a simulation and their schedule."""
