"""Pages of the web console."""
