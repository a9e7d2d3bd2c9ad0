"""Handlers of share groups: heartbeats, share fetches, acknowledgements, offsets and persisted state."""
