"""Components of a node, and the order in which they start and stop."""
