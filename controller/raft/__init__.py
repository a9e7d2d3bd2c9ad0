"""Metadata quorum: its state machine (elections, commits) and the store of its log."""
