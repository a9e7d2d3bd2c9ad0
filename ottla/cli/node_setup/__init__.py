"""Configuration, logging and run of a node from command line options, for ``ottla serve`` and similar commands."""
