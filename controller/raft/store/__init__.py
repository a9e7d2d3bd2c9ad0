"""Where the quorum's state lies: metadata log, snapshots, quorum-state."""
