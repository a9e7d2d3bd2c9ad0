"""Verbs of ``ottla cluster`` for a whole cluster: reassignment, removal of nodes, recovery of a lost quorum."""
