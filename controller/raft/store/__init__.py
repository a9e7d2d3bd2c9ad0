"""Storage of the quorum's state: metadata log, snapshots, quorum-state."""
