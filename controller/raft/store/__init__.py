"""Storage of a node's replica of the metadata log: log files, snapshots, ``quorum-state``."""
