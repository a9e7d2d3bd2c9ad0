"""Share coordinator (KIP-932): persisted delivery state of share partitions."""
