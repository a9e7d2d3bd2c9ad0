"""KRaft metadata quorum: Raft state machine, its driver, and the store of the ``__cluster_metadata-0`` log."""
