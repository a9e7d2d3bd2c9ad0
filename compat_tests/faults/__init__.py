"""Stock clients against a node with faults."""
