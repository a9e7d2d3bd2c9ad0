"""Settings of ``ottla serve`` and similar commands."""
