"""PySpark as an unmodified client: integration tests, and the pipeline `make run` shows."""
