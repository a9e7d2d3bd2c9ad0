"""Metadata image of the cluster, the metadata records and deltas that change it, and metadata snapshots."""
