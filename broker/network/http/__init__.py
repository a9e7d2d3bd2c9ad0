"""HTTP/1.1 server of a node for metrics and health checks; imported only if `ottla.metrics.listener` is set."""
