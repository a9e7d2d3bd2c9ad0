"""What several requests decide alike about partitions: placement, reassignment, leaders and in-sync sets."""
