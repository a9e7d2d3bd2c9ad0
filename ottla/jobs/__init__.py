"""Cooperative scheduling and the state machine contract."""
