"""Driver of the Raft state machine: executes its actions on files, clock and connections to the other controllers."""
