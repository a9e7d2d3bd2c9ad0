"""How ``ottla serve`` and its like come to their settings."""
