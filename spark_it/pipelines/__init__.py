"""Pipelines: ordinary spark-submit scripts, each with its input, its result in plain Python, and its display."""
