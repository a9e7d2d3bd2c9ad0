"""API handlers for share groups: heartbeats, share fetches, acknowledgements, offsets and persisted state (KIP-932)."""
