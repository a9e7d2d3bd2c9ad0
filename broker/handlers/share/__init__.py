"""API handlers for share groups (KIP-932): heartbeats, descriptions, fetches, acknowledgements, offsets and state."""
