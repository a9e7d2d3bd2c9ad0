"""Tiered storage (KIP-405): segments in a remote store, their metadata, and the rules for both tiers."""
