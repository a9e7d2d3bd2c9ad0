"""Commands of ``ottla``: one module with a function ``run`` for each, imported by the command's name."""
