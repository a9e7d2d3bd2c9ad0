"""Connections: listeners, acceptors, limits, and the life of one connection."""
