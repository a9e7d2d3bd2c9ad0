"""Moves of replicas between the log directories of this broker (KIP-113)."""
