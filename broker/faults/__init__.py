"""Fault injection into a node by tests, with a clock that tests can advance; only with ``ottla.faults=true``."""
