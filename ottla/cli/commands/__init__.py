"""One module for each command of ``ottla``, found by its name."""
