"""Work on a whole cluster: moving replicas, removing nodes, recovery of a lost quorum."""
