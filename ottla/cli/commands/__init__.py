"""Commands of ``ottla``, a module each, found by name."""
