"""Rules for partitions on the controller: replica placement, reassignment, leaders and in-sync replicas."""
