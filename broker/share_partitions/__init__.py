"""Share groups (KIP-932): delivery of records to members, and its state."""
