"""Settings of a node: files, listeners, what is dynamic, and what a start checks of them."""
