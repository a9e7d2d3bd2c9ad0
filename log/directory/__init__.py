"""Log directory of a node: ``meta.properties``, lock, checkpoints, partition logs, future logs, offline recovery."""
