"""Authentication and authorization of clients and nodes."""
