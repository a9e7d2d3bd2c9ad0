"""Faults that a test injects into a node, and its clock that a test advances: only with ``ottla.faults=true``."""
