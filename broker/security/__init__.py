"""Authentication and authorization of who speaks to a node."""
