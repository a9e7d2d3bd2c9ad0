"""Spark data source for log directories: Java sources, their build, and tests."""
