"""Share groups (KIP-932): membership, assignment, and administration of start offsets."""
