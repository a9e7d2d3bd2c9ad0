"""Settings of a node: values, listeners, dynamic settings, checks and descriptions; log levels; limits."""
