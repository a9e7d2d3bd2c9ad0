"""Log directory of a node: ``meta.properties``, lock, checkpoints, partition logs and future logs."""
