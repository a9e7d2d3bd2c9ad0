"""HTTP/1.1 server of a node: metrics and health. Imported only where `ottla.metrics.listener` is set."""
