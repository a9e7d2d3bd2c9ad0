"""Components of a node: their creation and connections, and the start of listeners and background tasks."""
