"""Share groups: who shares which partitions (KIP-932)."""
