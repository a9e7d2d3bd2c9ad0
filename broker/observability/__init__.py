"""Metrics and health of a node: request counters, the `/metrics` page, and metrics that clients push (KIP-714)."""
