"""Settings of a node: files, listeners, dynamic settings, and the checks at startup."""
