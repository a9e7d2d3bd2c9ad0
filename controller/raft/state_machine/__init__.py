"""Raft state machine of the controller quorum: events in, actions (`Ready`) out, without I/O."""
