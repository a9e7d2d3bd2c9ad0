"""Metadata image, the records and deltas that change it, and metadata snapshots."""
