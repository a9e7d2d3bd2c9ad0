"""The Raft state machine: pure, one step for each event."""
