"""Connections: frames in, dispatch, answers out, and what waits meanwhile."""
