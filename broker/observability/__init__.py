"""Metrics, traces and health of a node: request counters, `/metrics`, OTLP export, client metrics (KIP-714)."""
