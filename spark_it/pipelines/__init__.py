"""Pipelines: spark-submit scripts with input, result in plain Python and display, and the commands that run them."""
