"""Assignors: pure functions that compute the target assignment of a group from its members and topics."""
