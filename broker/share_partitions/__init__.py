"""Share groups (KIP-932): what is delivered to whom, and the coordinator that remembers it."""
