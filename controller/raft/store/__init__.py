"""Storage of a metadata quorum's replica: metadata log, snapshots, ``quorum-state``."""
