"""Raft state machine of the metadata quorum: events in, actions (`Ready`) out, without I/O."""
