"""Common base of the coordinators of this node."""
