"""HTTP/1.1 server of a node: metrics and health checks, console, fault injection; imported only if needed."""
