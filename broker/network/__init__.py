"""Network layer: listeners, acceptors, connection limits, connections, and an HTTP server."""
