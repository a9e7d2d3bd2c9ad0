"""Rules of the active controller for partitions: replica placement, reassignment, leaders and in-sync replicas."""
