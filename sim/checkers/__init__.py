"""Judges of a run: what a history, a log, a group or a cluster must never have shown."""
