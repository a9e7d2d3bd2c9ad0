"""The parts a node is made of, and the order in which they start and stop."""
