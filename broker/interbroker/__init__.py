"""Connections between brokers, and liveness of their peers."""
