"""The Raft machine at work: its files, clock and peers."""
