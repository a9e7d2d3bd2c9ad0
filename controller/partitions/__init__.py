"""Common decisions about partitions: placement, reassignment, leaders and in-sync replicas."""
