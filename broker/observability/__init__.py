"""Metrics: what a node counts, its page, and clients' own metrics."""
