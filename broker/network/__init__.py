"""Network layer: listeners, acceptors, connection limits, and connections."""
